// The only place that makes DOM nodes. Strings become text nodes and attribute
// values, so no data can become markup; links lead to pages of this server only.

const builder = (create) => (tag, attributes, ...children) => {
  const element = create(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false));
  return element;
};

export const html = builder((tag) => document.createElement(tag));
export const svg = builder((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));

// table has a column for each [title, cell of a row, class]; under gives what a
// row has in a line of its own, or nothing.
export function table(columns, rows, under = () => undefined) {
  const tr = (tag, cell) => html("tr", {}, columns.map((c) => html(tag, {class: c[2]}, cell(c))));
  const line = (text) => html("tr", {}, html("td", {class: "w dim", colspan: columns.length}, html("div", {}, text)));
  const body = rows.map((row) => [tr("td", (c) => c[1](row)), under(row) && line(under(row))]);
  return html("div", {class: "table"}, html("table", {}, html("thead", {}, tr("th", (c) => c[0])), html("tbody", {}, body)));
}

export const dim = (...text) => html("p", {class: "dim"}, text);
export const bad = (...text) => html("span", {class: "bad"}, text);
export const json = (query = "?format=json") => html("a", {href: query}, "JSON");

// pathOf is the page of a request; the steps of some are all that is known.
export const pathOf = (id) => (id && id !== "unknown" ? "/debug/requests/" + encodeURIComponent(id) : undefined);

// shortID is enough of an id to find the request by.
export const shortID = (id) => id.slice(0, 12);

// request names a request by both ids, as a link where it has a page.
export function request(r, hasPage = true) {
  const name = hasPage && pathOf(r.id) ? html("a", {href: pathOf(r.id)}, shortID(r.id)) : shortID(r.id);
  return [name, r.client_id && html("span", {class: "dim"}, " ", r.client_id)];
}

// time is milliseconds in the unit that reads best.
export function time(ms) {
  if (ms < 0) return "−" + time(-ms);
  if (ms === 0) return "0";
  if (ms < 0.1) return (1000 * ms).toFixed(0) + " µs";
  if (ms < 1) return ms.toFixed(2) + " ms";
  if (ms < 10) return ms.toFixed(1) + " ms";
  if (ms < 1000) return ms.toFixed(0) + " ms";
  if (ms < 120e3) return (ms / 1e3).toFixed(1) + " s";
  return (ms / 60e3).toFixed(0) + " min";
}

// bytes is a size in the unit that reads best.
export function bytes(n) {
  const at = Math.max(0, Math.min(4, Math.floor(Math.log2(Math.max(1, n)) / 10)));
  return (n / 1024 ** at).toFixed(at && n / 1024 ** at < 10 ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][at];
}

export const percent = (part, whole = 1) => ((100 * part) / Math.max(whole, 1e-9)).toFixed(0) + " %";

// kernelKind is the colour of a kernel class; page.css has one for each.
export const kernelKind = (cls) => "k k-" + cls.replace(/[^a-z0-9_]/g, "");

// along is a place or a length along a drawing, in percent of its width.
export const along = (x) => x.toFixed(3) + "%";

// bar is a rectangle of a drawing: x and width in percent, y and height in pixels.
export function bar(b) {
  const rect = svg("rect", {class: b.kind, x: along(b.x), y: b.y, width: along(b.width), height: b.height}, svg("title", {}, b.title));
  return b.href ? svg("a", {href: b.href}, rect) : rect;
}

export const swatch = (kind) => svg("svg", {class: "key", "aria-hidden": "true"}, svg("rect", {class: kind, width: "100%", height: "100%"}));
export const legend = (...entries) => html("ul", {class: "legend"}, entries.map(([kind, text]) => html("li", {}, kind && swatch(kind), text)));

// utc is a date as people read it.
export const utc = (date) => date.toISOString().replace("T", " ").replace("Z", " UTC");
