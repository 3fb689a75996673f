// The page of one request.
import {bad, dim, html, json, kernelKind, legend, percent, request as link, shortID, swatch, table, time, utc} from "./dom.js";
import {search} from "./requests.js";
import {waterfall} from "./waterfall.js";
import {meanings} from "./words.js";

export function request(view) {
  const v = {...view};
  for (const list of ["parts", "stall", "steps", "kernels", "neighbours", "reasons", "broken"]) v[list] ??= [];
  document.title = shortID(v.id) + " · Forebay";
  return [
    html("h1", {}, "Request " + v.id),
    html("p", {class: "sentence"}, v.sentence),
    html("ul", {class: "facts"}, facts(v).filter(Boolean).map((fact) => html("li", {}, fact))),
    html("div", {class: "buttons"}, json(), !v.running && [html("a", {href: "?format=otlp"}, "OTLP"), html("a", {href: "?format=perfetto"}, "Perfetto")]),
    html("h2", {}, "Where the time went"), waterfall(v), key(v), dim(drawn(v)),
    html("h2", {}, "Phases"), table(phases(v), v.parts),
    v.stall.length > 0 && [html("h2", {}, "In the engine"), table(stalls(v), v.stall)],
    html("h2", {}, "Neighbours"), neighbours(v),
    v.kernels.length > 0 && [html("h2", {}, "Kernels"), table(kernels, v.kernels)],
  ];
}

// missing is the page of a request that is not there.
export function missing(name, why) {
  return [
    html("h1", {}, name.slice(0, 128)), html("p", {class: "sentence"}, why),
    html("p", {}, "A request is kept if it missed a goal of its class, failed, was cancelled or preempted, was sampled by the caller's trace, asked for it, or was slow for its class. ",
      "A few others are kept for comparison. ", html("a", {href: "/debug/requests"}, "All requests")),
    search(),
  ];
}

const code = (text) => html("code", {}, text);

function facts(v) {
  const outcome = v.running ? "still running" : [v.failed ? bad(v.outcome) : v.outcome, v.status > 0 && ` (${v.status})`];
  return [
    [outcome, v.error && [" ", v.failed ? bad(v.error) : v.error]],
    [v.running ? "for " : "took ", html("b", {}, time(v.wall_ms))],
    v.usual && `${v.usual.ratio.toFixed(2)} times what is usual for its class and size, ${time(v.usual.wall_ms)} (first token ${time(v.usual.first_token_ms)}, ${v.usual.requests} requests)`,
    firstToken(v),
    v.first_token_goal_ms > 0 && promised(v),
    v.token_ms > 0 && v.token_ms.toFixed(1) + " ms a token",
    v.wait_reason && (v.wait_reason === "none" ? "did not wait" : "waited for " + v.wait_reason),
    `${v.prompt_tokens} prompt tokens${v.cached_tokens ? `, ${v.cached_tokens} cached` : ""}; ${v.completion_tokens} generated`,
    "tenant " + v.tenant + (v.key ? ", key " + v.key : ""),
    `class ${v.class}${v.demoted_from ? ` (demoted from ${v.demoted_from})` : ""}`,
    v.model,
    v.route + (v.stream ? ", streamed" : ""),
    "arrived " + utc(new Date(v.arrived)),
    v.client_id && ["client's id ", code(v.client_id)],
    ["trace ", code(v.trace_id)],
    v.reasons.length > 0 && "kept for " + v.reasons.join(", "),
    v.broken.length > 0 && bad("missed " + v.broken.join(", ")),
  ];
}

// firstToken is when it came, and when it was predicted to come on arrival.
function firstToken(v) {
  const came = v.first_token_ms > 0 && "first token " + time(v.first_token_ms);
  if (!(v.predicted_ms > 0)) return came;
  if (!came) return "first token predicted after " + time(v.predicted_ms);
  return came + (v.prediction_ratio ? `, ${v.prediction_ratio.toFixed(2)} times the predicted ` : ", predicted ") + time(v.predicted_ms);
}

// promised is what became of the goal for the first token.
function promised(v) {
  const goal = time(v.first_token_goal_ms);
  if (!v.promise) return `goal for the first token ${goal}, not promised`;
  return [`promised a first token within ${goal}: `, v.promise === "broken" || v.promise === "revoked" ? bad(v.promise) : v.promise];
}

const key = (v) => legend(
  ["s-own", "step with its own prompt"], ["s-decode", "step with decode only"], ["s-others", "step with prompts of others"], ["s-out", "step without it"], ["s-lost", "step in which the engine did not run"], ["own", "its own part of a step"],
  ...v.kernels.map((k) => [kernelKind(k.class), k.class]));

function drawn(v) {
  if (v.unkept) return `It was not kept: its record is from memory, with the ${v.steps.length} of its steps that still are there. To keep the next one, send it with the header x-forebay-capture: 1.`;
  if (v.brief) return "The steps were not kept: this class or tenant had used its quota of kept steps.";
  return `${v.steps.length} steps are drawn${v.steps_more ? `, ${v.steps_more} more are not` : ""}. A step is a link to the other request that took most of it.`;
}

const phases = (v) => [
  ["part", (p) => p.name],
  ["from", (p) => time(p.begin_ms), "n"],
  ["took", (p) => time(p.ms), "n"],
  ["of all", (p) => percent(p.ms, v.wall_ms), "n"],
  ["", (p) => meanings[p.name], "w dim"],
];

const stalls = (v) => [
  ["spent on", (p) => p.name],
  ["before the first token", (p) => time(p.before_first_ms), "n"],
  ["after it", (p) => time(p.after_first_ms), "n"],
  ["of all", (p) => percent(p.before_first_ms + p.after_first_ms, v.wall_ms), "n"],
  ["", (p) => meanings[p.name], "w dim"],
];

function neighbours(v) {
  if (v.neighbours.length === 0) return dim(v.brief ? "They were not kept." : "None: no other request was in its steps.");
  return [table([
    ["request", (n) => link(n)],
    ["tenant", (n) => n.tenant],
    ["class", (n) => n.class],
    ["shared steps", (n) => n.steps, "n"],
    ["its prompt tokens", (n) => n.prefill_tokens, "n"],
    ["its decode tokens", (n) => n.decode_tokens, "n"],
    ["its time in them", (n) => time(n.ms), "n"],
  ], v.neighbours), v.neighbours_more > 0 && dim(`${v.neighbours_more} more.`)];
}

const kernels = [
  ["class", (k) => [swatch(kernelKind(k.class)), k.class]],
  ["launches", (k) => k.count, "n"],
  ["whole", (k) => time(k.wall_ms), "n"],
  ["its own part", (k) => time(k.share_ms), "n"],
  ["longest", (k) => time(k.max_ms), "n"],
];
