// The page of what waits and runs.
import {dim, html, json, percent, request, table, time} from "./dom.js";

// grouped is a table whose rows have a column more where they are of groups.
const grouped = (columns, rows) => table(rows.some((r) => r.group) ? [["group", (r) => r.group], ...columns] : columns, rows);

export function queue(page) {
  const notes = [page.brownout && ` Overload: step ${page.brownout} of the ladder.`, page.limiter_degraded && " The shared store of budgets does not answer."];
  return [
    html("h1", {}, "Queue"),
    dim(`${page.waiting.length} waiting, ${page.running.length} running.`, notes.filter(Boolean), " ", json()),
    html("h2", {}, "Classes"), grouped(classes, page.classes),
    page.tenants.length > 0 && [html("h2", {}, "Tenants"), grouped(tenants, page.tenants)],
    page.upstreams && [html("h2", {}, "Upstreams"), grouped(upstreams, page.upstreams)],
    html("h2", {}, "Waiting"), page.waiting.length ? grouped(waiting, page.waiting) : html("p", {}, "Nothing waits."),
    html("h2", {}, "Running"), page.running.length ? grouped(running, page.running) : html("p", {}, "Nothing runs."),
  ];
}

// buttons set a class to the modes that it is not in.
const buttons = (c) => [["open", "open"], ["paused", "pause"], ["drained", "drain"]].filter(([mode]) => mode !== c.mode).map(([mode, verb]) =>
  html("form", {method: "post", action: `/debug/queue/${encodeURIComponent(c.name)}?mode=${mode}`}, html("button", {}, verb)));

const classes = [
  ["class", (c) => c.name],
  ["mode", (c) => c.mode],
  ["waiting", (c) => c.waiting, "n"],
  ["running", (c) => c.running, "n"],
  ["held", (c) => Math.ceil(c.waiting_bytes / 1024) + " KiB", "n"],
  ["share, last 30 s", (c) => percent(c.share), "n"],
  ["backlog", (c) => time(c.backlog_ms), "n"],
  ["margin", (c) => c.margin.toFixed(2), "n"],
  ["refused", (c) => c.refused, "n"],
  ["demoted", (c) => c.demoted, "n"],
  ["revoked", (c) => c.revoked, "n"],
  ["", buttons, "modes"],
];

// drain is the button that keeps new requests from an upstream, or lets them go there.
function drain(u) {
  const drained = u.state.startsWith("drain");
  const action = `/debug/upstreams?upstream=${encodeURIComponent(u.upstream)}&mode=${drained ? "open" : "drained"}`;
  return html("form", {method: "post", action}, html("button", {}, drained ? "open" : "drain"));
}

const upstreams = [
  ["upstream", (u) => u.upstream],
  ["kind", (u) => u.kind],
  ["state", (u) => u.why ? `${u.state}: ${u.why}` : u.state],
  ["sequences", (u) => u.sequences, "n"],
  ["places", (u) => u.places + (u.places_exact ? "" : ", learned"), "n"],
  ["prefill tokens", (u) => u.prefill_tokens, "n"],
  ["tokenizer", (u) => u.tokenizer || "none"],
  ["cache", (u) => u.cache ? `${u.cache.state}: ${u.cache.blocks} blocks` : ""],
  ["others", (u) => u.strangers.toFixed(1), "n"],
  ["delay", (u) => time(u.delay_ns / 1e6), "n"],
  ["step", (u) => time(u.step_ns / 1e6), "n"],
  ["served", (u) => u.served, "n"],
  ["failed", (u) => u.failed, "n"],
  ["ejected", (u) => u.ejected, "n"],
  ["", drain, "modes"],
];

const tenants = [
  ["tenant", (t) => t.name],
  ["class", (t) => t.class],
  ["waiting", (t) => t.waiting, "n"],
  ["running", (t) => t.running, "n"],
  ["deficit", (t) => time(t.deficit_ms), "n"],
  ["served, last 30 s", (t) => time(t.served_ms), "n"],
];

const lane = (r) => (r.long ? "long" : "short");

const waiting = [
  ["request", (r) => request(r)],
  ["tenant", (r) => r.tenant],
  ["class", (r) => r.class + (r.demoted ? " (demoted)" : "")],
  ["why", (r) => r.why],
  ["waited", (r) => time(r.waited_ms), "n"],
  ["starts in", (r) => (r.starts_ms < 0 ? "unknown" : time(r.starts_ms)), "n"],
  ["prefill", (r) => time(r.prefill_ms), "n"],
  ["cost", (r) => time(r.cost_ms), "n"],
  ["tokens", (r) => r.uncached_tokens, "n"],
  ["lane", lane],
];

const running = [
  ["request", (r) => request(r)],
  ["tenant", (r) => r.tenant],
  ["class", (r) => r.class],
  ["since", (r) => time(r.ran_ms), "n"],
  ["tokens", (r) => r.tokens, "n"],
  ["lane", lane],
  ["stage", (r) => (r.first_token ? "decode" : "prefill")],
];
