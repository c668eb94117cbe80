// Java's KafkaShareConsumer for the benchmark of share groups: reads COUNT records, with a handler of MS milliseconds (SLOW_MS for
// every EVERY-th record, if that is not 0) and as many THREADS, and accepts each. It reads BATCH records at once, and again when all
// of them are done: poll() raises IllegalStateException before that. Prints the seconds from the first record to the last
// acknowledgement, and the latencies, of which the first WARM_UP do not count.
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareWorker {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1];
        int count = Integer.parseInt(args[2]), ms = Integer.parseInt(args[3]), threads = Integer.parseInt(args[4]);
        int slowMs = Integer.parseInt(args[5]), batch = Integer.parseInt(args[6]);
        int every = Integer.parseInt(args[7]), warmUp = Integer.parseInt(args[8]);
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        options.put("group.id", topic);
        options.put("max.poll.records", batch);
        options.put("key.deserializer", ByteArrayDeserializer.class.getName());
        options.put("value.deserializer", ByteArrayDeserializer.class.getName());
        options.put("share.acknowledgement.mode", "explicit");
        ExecutorService pool = Executors.newFixedThreadPool(Math.max(1, threads));
        long began = 0;
        int done = 0;
        List<Double> latencies = new ArrayList<>();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(options)) {
            consumer.subscribe(List.of(topic));
            while (done < count) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(1000));
                if (records.isEmpty()) continue;
                if (began == 0) began = System.nanoTime();
                List<Future<?>> running = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    Instant now = Instant.now();
                    latencies.add(now.getEpochSecond() * 1e3 + now.getNano() / 1e6 - record.timestamp());
                    int takes = slowMs > 0 && record.offset() % every == every - 1 ? slowMs : ms;
                    if (ms > 0) running.add(pool.submit(() -> { try { Thread.sleep(takes); } catch (InterruptedException e) { } }));
                    else { consumer.acknowledge(record); done++; }
                }
                int at = 0;
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (ms == 0) break;
                    running.get(at++).get();
                    consumer.acknowledge(record);
                    done++;
                }
            }
            consumer.commitSync();
            double seconds = (System.nanoTime() - began) / 1e9;
            latencies = new ArrayList<>(latencies.subList(latencies.size() > warmUp ? warmUp : 0, latencies.size()));
            Collections.sort(latencies);
            System.out.printf(Locale.ROOT, "{\"seconds\": %f, \"done\": %d, \"median_ms\": %f, \"p99_ms\": %f}%n", seconds, done,
                latencies.get(latencies.size() / 2), latencies.get(latencies.size() * 99 / 100));
        }
        pool.shutdown();
    }
}
