import java.io.File;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

/** A Kerberos KDC on loopback, in memory: {@code directory realm port}, then {@code keytab principal} pairs. Ends with its input. */
public final class Kdc {
    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        SimpleKdcServer kdc = new SimpleKdcServer();
        kdc.setWorkDir(directory);
        kdc.setKdcRealm(arguments[1]);
        kdc.setKdcHost("127.0.0.1");
        kdc.setAllowUdp(false);
        kdc.setKdcTcpPort(Integer.parseInt(arguments[2]));
        kdc.init();
        kdc.start();
        for (int i = 3; i + 1 < arguments.length; i += 2) {
            kdc.createAndExportPrincipals(new File(directory, arguments[i]), arguments[i + 1]);
        }
        System.out.println("ready");
        System.in.read();
        System.exit(0);
    }
}
