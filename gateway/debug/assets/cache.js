// The page of what the cache holds and saves, and of the siblings.
import {dim, html, json, percent, table, time} from "./dom.js";

export function cache(page) {
  return [
    html("h1", {}, "Cache"),
    dim(`${page.pages} pages of ${page.page_tokens} tokens: ${page.pages_used} used, ${page.pages_cached} cached, ${page.pages_free} free.`, " ", json()),
    html("h2", {}, "Hits"), page.hits.length ? table(hits, page.hits) : html("p", {}, "No request is in memory."),
    page.name ? siblings(page) : html("p", {}, "This replica has no siblings: siblings.store is not set."),
  ];
}

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
