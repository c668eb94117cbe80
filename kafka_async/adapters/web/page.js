// Keeps the page that the server made up to date. All text goes in as text, never as HTML.
"use strict";
(() => {
  const group = document.body.dataset.group;
  const table = document.getElementById("rows");
  const connection = document.getElementById("connection");
  const changes = document.getElementById("changes");
  if (!table || !window.EventSource) {
    if (!table) setTimeout(() => location.reload(), 3000); // the first poll has not ended yet
    return;
  }
  const body = table.tBodies[0];
  const order = ["STOP", "UNREADABLE", "STALL", "REWIND", "ERR", "WARN", "UNKNOWN", "OK"];
  let source = null;
  let chosen = { column: "status", down: true };

  const setText = (place, text) => {
    if (place && place.textContent !== text) place.textContent = text;
  };

  const drawTrend = (place, trend) => {
    if (!place || !trend) return;
    place.setAttribute("aria-label", trend.label);
    place.firstElementChild.setAttribute("points", trend.points);
  };

  // Items that stay the same keep a selection in them.
  const drawList = (place, texts) => {
    if (!place) return;
    while (place.children.length > texts.length) place.lastElementChild.remove();
    while (place.children.length < texts.length) place.append(document.createElement("li"));
    texts.forEach((text, number) => setText(place.children[number], text));
  };

  const newRow = (data) => {
    const row = document.createElement("tr");
    row.dataset.key = data.key;
    for (const head of table.tHead.rows[0].cells) {
      const name = head.dataset.column;
      const cell = document.createElement(name === "group" ? "th" : "td");
      cell.dataset.cell = name;
      if (name === "group") {
        cell.scope = "row";
        const link = document.createElement("a");
        link.href = "/groups/" + encodeURIComponent(data.key);
        cell.append(link);
      } else if (name === "trend") {
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        for (const [key, value] of [["class", "trend"], ["viewBox", "0 0 120 24"], ["width", "120"], ["height", "24"], ["role", "img"]]) {
          svg.setAttribute(key, value);
        }
        svg.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
        cell.append(svg);
      }
      row.append(cell);
    }
    return row;
  };

  // Rows are changed where they stand, so that focus and selection stay.
  const drawRow = (data, known) => {
    let row = known.get(data.key);
    const before = row && row.dataset.status;
    if (!row) {
      row = newRow(data);
      body.append(row);
      known.set(data.key, row);
    }
    row.dataset.status = data.status;
    for (const cell of row.cells) {
      const name = cell.dataset.cell;
      if (name === "trend") drawTrend(cell.firstElementChild, data.trend);
      else if (name === "group") setText(cell.firstElementChild, data.key);
      else setText(cell, data.cells[name]);
    }
    return before && before !== data.status ? data.key + " is " + data.status : "";
  };

  const number = (text) => {
    const found = text.replace(/[>=~, ]/g, "").match(/^([0-9.]+)(min|s|h|d)?$/);
    if (!found) return text === "never" ? Infinity : -1;
    return Number(found[1]) * ({ min: 60, h: 3600, d: 86400 }[found[2]] || 1);
  };

  const textOf = (row, name) => row.querySelector('[data-cell="' + name + '"]').textContent;

  const compare = (left, right) => {
    const name = chosen.column;
    if (name === "status") {
      return (
        order.indexOf(right.dataset.status) - order.indexOf(left.dataset.status) || number(textOf(left, "lag")) - number(textOf(right, "lag"))
      );
    }
    if (["group", "partition", "type", "worst", "owner", "note"].includes(name)) return textOf(left, name).localeCompare(textOf(right, name));
    return number(textOf(left, name)) - number(textOf(right, name));
  };

  const sort = () => {
    const rows = [...body.rows].sort(compare);
    if (chosen.down) rows.reverse();
    rows.forEach((row, place) => {
      if (body.rows[place] === row) return;
      const focused = row.contains(document.activeElement) ? document.activeElement : null;
      body.insertBefore(row, body.rows[place]);
      if (focused) focused.focus({ preventScroll: true });
    });
  };

  for (const head of table.tHead.rows[0].cells) {
    const button = head.querySelector("button");
    if (!button) continue;
    button.addEventListener("click", () => {
      chosen = { column: head.dataset.column, down: chosen.column === head.dataset.column ? !chosen.down : true };
      for (const other of table.tHead.rows[0].cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", chosen.down ? "descending" : "ascending");
      sort();
    });
  }

  const draw = (event) => {
    const data = JSON.parse(event.data);
    const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
    const said = data.rows.map((row) => drawRow(row, known)).filter(Boolean);
    // The first event of a stream knows nothing of what is here: a group may have gone while nobody listened.
    const named = new Set(data.rows.map((row) => row.key));
    const gone = data.all ? [...known.keys()].filter((key) => !named.has(key)) : data.gone;
    for (const key of gone) if (known.has(key)) known.get(key).remove();
    if (said.length) changes.textContent = said.join(", ");
    for (const [id, text] of Object.entries(data.texts)) setText(document.getElementById(id), text);
    if (data.members) drawList(document.getElementById("members"), data.members);
    if (data.facts) for (const place of document.querySelectorAll("[data-fact]")) setText(place, data.facts[place.dataset.fact]);
    if (group) drawTrend(document.querySelector("dl .trend"), data.trend);
    sort();
    connection.textContent = "Live, poll " + event.lastEventId + ".";
  };

  const open = () => {
    if (source) return;
    source = new EventSource(group ? "/events?group=" + encodeURIComponent(group) : "/events");
    source.addEventListener("poll", draw);
    source.addEventListener("error", () => {
      if (!connection.textContent.startsWith("Not")) connection.textContent = "Not connected since " + new Date().toLocaleTimeString() + ".";
      if (source && source.readyState === EventSource.CLOSED) { // refused, such as by the cap of streams: ask again later
        source = null;
        setTimeout(() => document.hidden || open(), 10000);
      }
    });
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  // A browser has six connections to a server: a hidden page holds none of them.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", () => document.hidden || open());
})();
