// The page of all requests.
import {bad, dim, html, json, request, table, time} from "./dom.js";

export function requests(page) {
  const query = new URLSearchParams(location.search);
  query.set("format", "json");
  const {recent} = page;
  const first = recent.first_token_p50_ms ? `; first token after ${time(recent.first_token_p50_ms)} (median), ${time(recent.first_token_p99_ms)} (99 %)` : "";
  return [
    html("h1", {}, "Requests"), search(), filter(query),
    dim(`In the last ${(recent.over_ms / 1000).toFixed(0)} s: ${recent.finished} finished, ${recent.failed} failed, ${recent.completion_tokens} tokens${first}. `, json("?" + query)),
    html("h2", {}, "Running"), rows(page.in_flight, live),
    html("h2", {}, "Slow"), rows(page.slow, ended, (r) => r.sentence),
    html("h2", {}, "Failed"), rows(page.failed, ended, (r) => r.sentence),
    html("h2", {}, "All that finished"), rows(page.finished, ended, (r) => r.sentence),
  ];
}

const field = (name, label, value) => html("input", {name, class: name, value: value ?? undefined, placeholder: label, "aria-label": label});

export const search = () => html("form", {action: "/debug/requests"}, field("id", "request, client or trace id"), html("button", {}, "show"));

const filter = (query) => html("form", {action: "/debug/requests"},
  [["class", "class"], ["tenant", "tenant"], ["key", "key"], ["outcome", "outcome"], ["cause", "cause"], ["reason", "reason or goal"], ["min_ms", "min ms"], ["since", "since, 10m or a time"], ["until", "until"]].map(([name, label]) => field(name, label, query.get(name))),
  html("button", {}, "filter"));

const rows = (list, columns, under) => (list.length ? table(columns, list, under) : dim("None."));

// ending is red where the service failed, and not where the request was wrong itself.
function ending(r) {
  const words = [r.outcome, r.error && r.error !== r.outcome && ` (${r.error})`];
  return r.failed ? bad(words) : words;
}

const live = [
  ["request", (r) => request(r)],
  ["tenant", (r) => [r.tenant, r.key && html("span", {class: "dim"}, " ", r.key)]],
  ["class", (r) => r.class],
  ["stage", (r) => r.stage],
  ["in it for", (r) => time(r.stage_ms), "n"],
  ["age", (r) => time(r.age_ms), "n"],
  ["tokens", (r) => r.tokens, "n"],
];

const ended = [
  ["request", (r) => request(r)],
  ["tenant", (r) => [r.tenant, r.key && html("span", {class: "dim"}, " ", r.key)]],
  ["class", (r) => r.class],
  ["outcome", (r) => ending(r)],
  ["cause", (r) => r.cause],
  ["ago", (r) => time(r.ago_ms), "n"],
  ["took", (r) => time(r.total_ms), "n"],
  ["queue", (r) => time(r.queue_ms), "n"],
  ["first token", (r) => time(r.first_token_ms), "n"],
  ["tokens", (r) => `${r.prompt_tokens} + ${r.completion_tokens}`, "n"],
  ["kept for", (r) => [(r.reasons ?? []).join(", "), (r.broken ?? []).map((goal) => [" ", bad(goal)])], "wrap"],
];
