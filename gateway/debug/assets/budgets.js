// The page of what holders of limits have used and have left.
import {bad, dim, html, json, percent, table, time} from "./dom.js";

export function budgets(page) {
  const notes = [page.shared && "Gateways share these limits.", page.degraded && bad(" Their store does not answer: this is what this gateway knows."), page.more > 0 && ` ${page.more} more holders of limits are left out.`];
  return [
    html("h1", {}, "Budgets"),
    dim(notes.filter(Boolean), " ", json()),
    html("h2", {}, "Limits"), page.limits.length ? table(limits, page.limits) : html("p", {}, "No tenant, key or user has limits here."),
    html("h2", {}, "Used at this gateway"), dim(`Since ${page.since.replace("T", " ").replace("Z", " UTC")}.`),
    page.used.length ? table(used, page.used) : html("p", {}, "Nothing yet."),
  ];
}

const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 1});
const money = new Intl.NumberFormat("en", {maximumSignificantDigits: 4});
const amount = (r, n) => (r.limit.startsWith("cost_") ? money : whole).format(n);
const tight = (r) => r.left < 0.1 * Math.min(r.allowed, r.left + r.used);

const limits = [
  ["tenant", (r) => r.tenant],
  ["holder", (r) => (r.kind === "tenant" ? "the tenant" : `${r.kind} ${r.name ?? ""}`)],
  ["model", (r) => r.model],
  ["limit", (r) => r.limit + (r.dry_run ? " (dry run)" : "")],
  ["allowed", (r) => amount(r, r.allowed), "n"],
  ["used", (r) => amount(r, r.used), "n"],
  ["left now", (r) => (tight(r) ? bad(amount(r, r.left)) : amount(r, r.left)), "n"],
  ["whole in", (r) => (r.whole_ms ? span(r.whole_ms) : ""), "n"],
];

// span is a time that may be days.
const span = (ms) => (ms < 3600e3 ? time(ms) : ms < 48 * 3600e3 ? (ms / 3600e3).toFixed(1) + " h" : (ms / 86400e3).toFixed(1) + " days");

const used = [
  ["tenant", (u) => u.tenant],
  ["key", (u) => u.key],
  ["requests", (u) => whole.format(u.requests), "n"],
  ["not charged", (u) => whole.format(u.refunded), "n"],
  ["prompt tokens", (u) => whole.format(u.computed_tokens + u.cached_tokens), "n"],
  ["of them cached", (u) => percent(u.cached_tokens, u.computed_tokens + u.cached_tokens), "n"],
  ["generated", (u) => whole.format(u.completion_tokens), "n"],
  ["cost", (u) => (u.cost ? money.format(u.cost) : ""), "n"],
];
