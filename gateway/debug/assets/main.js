// Shows the page of this path: reads its JSON and builds it.
import {dim, html, utc} from "./dom.js";
import {missing, request} from "./request.js";
import {requests} from "./requests.js";
import {steps} from "./steps.js";
import {queue} from "./queue.js";
import {budgets} from "./budgets.js";
import {cache} from "./cache.js";

const pages = {
  "/debug/requests": ["Requests", requests],
  "/debug/steps": ["Steps", steps],
  "/debug/queue": ["Queue", queue],
  "/debug/budgets": ["Budgets", budgets],
  "/debug/cache": ["Cache", cache],
};

// read returns the page's JSON. A refusal is thrown, with its status.
async function read() {
  const query = new URLSearchParams(location.search);
  query.set("format", "json");
  let response, data;
  try {
    response = await fetch("?" + query, {cache: "no-store"});
    data = await response.json();
  } catch {
    throw new Error("Forebay does not answer. Is it still running? Load the page again to try once more.");
  }
  if (!response.ok) throw Object.assign(new Error(data.error.message), {status: response.status});
  return data;
}

async function show() {
  const name = location.pathname.startsWith("/debug/requests/") ? requestName() : "";
  const [title, build] = name ? [name.slice(0, 12), request] : pages[location.pathname] ?? ["Forebay", () => []];
  document.title = title + " · Forebay";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  }
  const main = document.querySelector("main");
  main.replaceChildren(html("h1", {}, title), dim("Loading …"));
  let content;
  try {
    const data = await read();
    content = [build(data), html("p", {class: "dim", id: "read-at"}, `As of ${utc(new Date())}. Load the page again for newer data.`)];
  } catch (error) {
    content = name && error.status === 404 ? missing(name, error.message) : [html("h1", {}, title), html("p", {class: "sentence"}, error.message)];
    if (!name && error.status === 400) content.push(html("p", {}, html("a", {href: location.pathname}, "The page without the filter")));
    if (!error.status) console.error(error);
  }
  main.replaceChildren(...content.flat(Infinity).filter(Boolean));
  main.removeAttribute("aria-busy");
}

// requestName is the id in the path.
function requestName() {
  const text = location.pathname.slice("/debug/requests/".length);
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

show();
