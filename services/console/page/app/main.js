// @ts-check
/** Starts the page. */

import { effect } from "@preact/signals";
import { render } from "preact";

import { html } from "./html.js";
import { startKeys } from "./keys.js";
import { navigate, refusal, route, shown, start } from "./state.js";
import { Page } from "./view-page.js";
import { startTips } from "./view-tip.js";

/** @import { View } from "./router.js" */

/** @type {Readonly<Record<View, string>>} */
const TITLES = {
  overview: "Overview",
  ...{ nodes: "Nodes", node: "Node", jobs: "Jobs", job: "Job" },
  ...{ sessions: "Sessions", session: "Session", rooms: "Rooms", room: "Room" },
  instances: "Instances",
  ...{ "sign-in": "Sign in", unknown: "Not found" },
};

/** Links within the site change the view, not the page. */
addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  const isPlain =
    event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (!(link instanceof HTMLAnchorElement) || !isPlain || event.defaultPrevented) {
    return;
  }
  if (link.origin === location.origin && link.target === "" && link.hash === "") {
    event.preventDefault();
    navigate(link.pathname + link.search, { replace: "replace" in link.dataset });
  }
});

let place = "";
let isNew = false;
effect(() => {
  const { view, id } = route.value;
  document.title = `${id === "" ? TITLES[view] : `${TITLES[view]} ${id}`} · Lingua`;
  isNew ||= place !== "" && place !== `${view}/${id}`;
  place = `${view}/${id}`;
});
effect(() => {
  // The heading of one node, job, session or room comes with its document.
  const hasCome = shown.value !== null || refusal.value !== null;
  if (route.value && isNew) {
    isNew = !hasCome;
    setTimeout(focusHeading, 0);
  }
});

/** Whoever listens to the page, or uses its keys, goes on at the top of another view. */
function focusHeading() {
  if (!document.activeElement?.matches("input, select, dialog *")) {
    document.querySelector("h1")?.focus();
  }
}

const root = /** @type {HTMLElement} */ (document.getElementById("page"));
root.replaceChildren();
render(html`<${Page} />`, root);
startKeys();
startTips();
start();
