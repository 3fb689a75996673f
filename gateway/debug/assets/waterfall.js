// The drawing of where a request's time went: three lanes over one time scale.
// Lengths along the time are percent of the drawing's width, so that the drawing
// fits any screen while its text keeps its size; lengths across are pixels.
import {along, bar, kernelKind, pathOf, shortID, svg, time} from "./dom.js";
import {partKinds} from "./words.js";

const axisHeight = 18;
const titleHeight = 24;
const rowHeight = 20;
const barHeight = 14;
const stripHeight = 48;
const widthMin = 0.2; // percent, so that no bar is invisible

export function waterfall(v) {
  const scale = Math.max(0.001, v.wall_ms, ...v.parts.map((p) => p.begin_ms + p.ms)); // milliseconds of the whole width
  const phasesAt = axisHeight + titleHeight;
  const stepsAt = phasesAt + rowHeight * v.parts.length;
  const kernelsAt = stepsAt + titleHeight + stripHeight;
  const height = kernelsAt + titleHeight + stripHeight;
  const lane = (y, title) => svg("text", {class: "lane", x: 0, y, dy: 17}, title);
  const strips = v.steps.map((step) => ({step, ...stretch(scale, step.begin_ms, step.ms)}));
  return svg("svg", {height, role: "img", "aria-label": v.sentence},
    ticks(scale, height),
    lane(axisHeight, "phases"), v.parts.map((p, i) => phase(scale, p, phasesAt + i * rowHeight)),
    lane(stepsAt, "steps of the engine"), strips.map((s) => whole(s, stepsAt + titleHeight)), strips.map((s) => own(s, stepsAt + titleHeight)),
    lane(kernelsAt, "kernels of these steps"), strips.map((s) => kernels(s, kernelsAt + titleHeight)));
}

const percent = (scale, ms) => Math.min(Math.max((100 * ms) / scale, 0), 100);

// stretch is where a time lies on the scale; it is always within the drawing.
function stretch(scale, begin, ms) {
  const x = Math.min(percent(scale, begin), 100 - widthMin);
  return {x, width: Math.min(Math.max(percent(scale, ms), widthMin), 100 - x)};
}

// ticks are lines at round times, about four.
function ticks(scale, height) {
  let unit = 10 ** Math.floor(Math.log10(scale / 2));
  unit *= [1, 2, 5, 10].find((m) => scale / (unit * m) <= 5) ?? 1;
  const all = [];
  for (let i = 0; i * unit <= scale; i++) {
    const at = percent(scale, i * unit);
    const anchor = i === 0 ? "start" : at > 94 ? "end" : "middle";
    const x = along(at);
    all.push(svg("line", {x1: x, x2: x, y1: 16, y2: height}), svg("text", {class: "axis", x, y: 12, "text-anchor": anchor}, tickTime(i * unit, unit)));
  }
  return all;
}

// tickTime is a time with as many digits as steps of unit need.
function tickTime(ms, unit) {
  if (ms === 0) return "0";
  if (unit < 1) return ms.toFixed(Math.ceil(-Math.log10(unit) - 1e-9)) + " ms";
  if (unit < 100) return ms.toFixed(0) + " ms";
  return (ms / 1000).toFixed(unit < 1000 ? 1 : 0) + " s";
}

// phase is a bar with its text on the side where there is most room, or on it.
function phase(scale, p, y) {
  const {x, width} = stretch(scale, p.begin_ms, p.ms);
  const title = `${p.name} ${time(p.ms)}`;
  const gap = 0.8;
  const right = 100 - x - width;
  let [at, anchor] = x < 20 ? [x + gap, "start"] : [x + width / 2, "middle"];
  if (right >= x && right >= 45) [at, anchor] = [x + width + gap, "start"];
  else if (x >= 45) [at, anchor] = [x - gap, "end"];
  return [bar({x, width, y, height: barHeight, kind: "p-" + (partKinds[p.name] ?? "other"), title}), svg("text", {x: along(at), y, dy: 11, "text-anchor": anchor}, title)];
}

// stepKind is the colour of a step, from the request's point of view.
function stepKind(step) {
  if (2 * (step.lost_ms ?? 0) >= step.ms) return "s-lost";
  if (!step.member) return "s-out";
  if (step.prefill_tokens > step.others_prefill) return "s-own";
  return step.others_prefill > 0 ? "s-others" : "s-decode";
}

const pixels = (ms, step) => Math.round(stripHeight * Math.min(1, ms / Math.max(step.ms, 1e-9)));

function whole({step, x, width}, y) {
  const role = step.member ? `${time(step.own_ms)} of it for this request's ${step.own_tokens} tokens` : "this request was left out: " + (step.left_out ?? "");
  const most = step.largest ? "; most of it for " + shortID(step.largest) : "";
  const lost = step.lost_ms ? `; for ${time(step.lost_ms)} the engine did not run (${step.lost_to})` : "";
  const foretold = step.predicted_ms ? `, foretold ${time(step.predicted_ms)}` : "";
  const title = `step ${step.step}: ${time(step.ms)}${foretold}${lost}; ${role}; ${step.decode_rows} decode rows, ${step.others_prefill} prompt tokens of others${most}`;
  return bar({x, width, y, height: stripHeight, kind: stepKind(step), title, href: pathOf(step.largest)});
}

// own is the request's own part, over the lower end of the step.
function own({step, x, width}, y) {
  const height = step.member ? pixels(step.own_ms, step) : 0;
  return height > 0 && bar({x, width, y: y + stripHeight - height, height, kind: "own", title: ""});
}

// kernels are the classes of a step, one above the other, each as high as its
// part of the step.
function kernels({step, x, width}, y) {
  let sum = 0;
  return (step.kernels ?? []).map((k) => {
    const from = pixels(sum, step);
    sum += k.ms;
    const height = pixels(sum, step) - from;
    return height > 0 && bar({x, width, y: y + stripHeight - from - height, height, kind: kernelKind(k.class), title: `${k.class}: ${time(k.ms)} of step ${step.step}`});
  });
}
