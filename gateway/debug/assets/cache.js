// The page of what the cache holds and saves, and of the siblings.
import {bytes, dim, html, json, percent, table, time} from "./dom.js";

export function cache(page) {
  return [
    html("h1", {}, "Cache"),
    dim(`${page.pages} pages of ${page.page_tokens} tokens: ${page.pages_used} used (${page.pages_pinned} pinned), ${page.pages_cached} cached, ${page.pages_free} free.`, " ", json()),
    page.disk ? dim(`On disk: ${page.disk.blocks} blocks, ${bytes(page.disk.bytes)}; ${page.disk.read} read, ${page.disk.written} written, ${page.disk.dropped} dropped, ${page.disk.damaged} damaged.`) : undefined,
    html("h2", {}, "Memory"), page.held.error ? html("p", {}, `The engine did not tell what its pages hold: ${page.held.error}`) : table(tenants(page), page.held.tenants),
    page.held.prefixes.length ? [html("h2", {}, "Beginnings that saved the most"), table(prefixes, page.held.prefixes)] : [],
    page.held.pins.length || page.pins_yielded ? [html("h2", {}, "Pinned"), dim(`${page.pins_yielded} ended early, for a prompt that needed all pages.`), table(pins, page.held.pins)] : [],
    html("h2", {}, "Hits"), page.hits.length ? table(hits, page.hits) : html("p", {}, "No request is in memory."),
    page.name ? siblings(page) : html("p", {}, "This replica has no siblings: siblings.store is not set."),
  ];
}

const tenants = (page) => [
  ["tenant", (t) => t.tenant],
  ["memory", (t) => bytes((t.used + t.cached) * page.page_bytes), "n"],
  ["pages used", (t) => t.used, "n"],
  ["pinned", (t) => t.pinned, "n"],
  ["cached", (t) => t.cached, "n"],
];

const prefixes = [
  ["tenant", (p) => p.tenant],
  ["hash", (p) => p.hash],
  ["tokens", (p) => p.tokens, "n"],
  ["uses", (p) => p.uses, "n"],
  ["pinned", (p) => (p.pinned ? "yes" : "")],
];

const pins = [
  ["tenant", (p) => p.tenant],
  ["hash", (p) => p.hash],
  ["tokens", (p) => p.tokens, "n"],
  ["ends in", (p) => time(p.left_ms), "n"],
];

const hits = [
  ["tenant", (h) => h.tenant],
  ["class", (h) => h.class],
  ["requests", (h) => h.requests, "n"],
  ["prompt tokens", (h) => h.prompt_tokens, "n"],
  ["from the cache", (h) => h.cached_tokens, "n"],
  ["hit rate", (h) => percent(h.cached_tokens / Math.max(1, h.prompt_tokens)), "n"],
];

const siblings = (page) => [
  html("h2", {}, "Siblings"),
  dim(`This is ${page.name}, at ${page.address}. ${(page.direct ? "Siblings" : "Redis") + (page.store_up ? " answered lately." : " did not answer lately: requests stay here.")}`,
    ` ${page.own_blocks} blocks told, ${page.blocks} known. Hops: ${page.hops} out, ${page.hops_refused} refused, ${page.hops_failed} failed, ${page.hops_taken} in.`),
  page.siblings.length ? table(others, page.siblings) : html("p", {}, "No sibling is alive."),
  html("h2", {}, "Placed"), table(placed, page.placed),
];

const others = [
  ["sibling", (s) => s.name],
  ["address", (s) => s.address],
  ["state", (s) => (!s.ready ? "not ready" : s.avoided ? "avoided" : s.synced ? "ready" : "its blocks are being fetched")],
  ["report", (s) => time(s.age_ms), "n"],
  ["wait", (s) => time(s.wait_ms), "n"],
  ["running", (s) => s.running, "n"],
  ["waiting", (s) => s.waiting, "n"],
  ["pages free", (s) => `${s.pages_free} of ${s.pages}`, "n"],
  ["blocks known", (s) => s.blocks, "n"],
  ["hops", (s) => s.hops, "n"],
  ["failed", (s) => s.hops_failed, "n"],
];

const placed = [
  ["why", (p) => p.why],
  ["requests", (p) => p.count, "n"],
];
