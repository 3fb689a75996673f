// The page of the engine's last steps.
import {bar, dim, html, json, legend, percent, svg, table, time} from "./dom.js";

export function steps(page) {
  const {pages} = page;
  return [
    html("h1", {}, "Steps"),
    page.error && html("p", {class: "sentence"}, "The engine cannot serve: " + page.error),
    dim(`The last ${page.steps.length} steps: ${time(page.over_ms)}, ${percent(page.busy)} of it computing; ${page.decode_tokens} decode tokens, ${page.prefill_tokens} prompt tokens. `,
      `${page.sequences} sequences. Pages: ${pages.used} used, ${pages.cached} cached, ${pages.free} free of ${pages.total}. `, json()),
    page.steps.length ? [strip(page.steps), table(columns, page.steps)] : html("p", {}, "None yet."),
  ];
}

// strip draws the steps, oldest first: equal widths, heights by duration.
function strip(all) {
  const height = 96;
  const longest = Math.max(0.001, ...all.map((r) => r.ms));
  const width = 100 / Math.max(64, all.length);
  const bars = all.toReversed().map((r, i) => {
    const h = Math.max(1, Math.floor((height * r.ms) / longest));
    const title = `step ${r.step}: ${time(r.ms)}; ${r.decode_rows} decode rows, ${r.prefill_tokens} prompt tokens`;
    return bar({x: i * width, width, y: height - h, height: h, kind: r.prefill_tokens > 0 ? "s-others" : "s-decode", title});
  });
  return [
    svg("svg", {height: height + 2, role: "img", "aria-label": "durations of the last steps, oldest first"}, bars),
    legend(["s-decode", "decode only"], ["s-others", "prompts too"], [undefined, "height: duration; the newest is at the right"]),
  ];
}

const columns = [
  ["step", (r) => r.step, "n"],
  ["ago", (r) => time(r.ago_ms), "n"],
  ["took", (r) => time(r.ms), "n"],
  ["gap before", (r) => time(r.gap_ms), "n"],
  ["decode rows", (r) => r.decode_rows, "n"],
  ["prompt tokens", (r) => r.prefill_tokens, "n"],
  ["left out", (r) => r.left_out, "n"],
  ["preempted", (r) => r.preempted, "n"],
  ["pages", (r) => r.pages_used, "n"],
  ["kernels", (r) => r.kernels.filter((k) => k.ms >= r.ms / 20).map((k) => [html("span", {class: "nowrap"}, `${k.class} ${time(k.ms)}`), " "]), "w kernels"],
];
