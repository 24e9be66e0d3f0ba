// @ts-check
/** Numbers of what the pointer is on, or the focus: the text in `data-tip`. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

import { html } from "./html.js";

/** @typedef {{ text: string, x: number, top: number, bottom: number }} Tip */

const tip = /** @type {import("@preact/signals").Signal<Tip | null>} */ (signal(null));
const MARGIN = 8;

/** What it is about; null if there is no tip. @type {Element | null} */
let mark = null;

/** One for the page: marks have nothing to do but to carry their text. */
export function startTips() {
  for (const type of ["mouseover", "focusin"]) {
    document.addEventListener(type, (event) => {
      mark = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
      show();
    });
  }
  document.addEventListener("focusout", hide);
  // A cell that gets the focus is scrolled to.
  addEventListener("scroll", show, { capture: true, passive: true });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      hide();
    }
  });
}

function hide() {
  mark = null;
  tip.value = null;
}

function show() {
  const text = mark?.getAttribute("data-tip") ?? "";
  if (mark === null || text === "" || !mark.isConnected) {
    tip.value = null;
    return;
  }
  const { left, right, top, bottom } = mark.getBoundingClientRect();
  const isSeen = bottom > 0 && top < innerHeight && right > 0 && left < innerWidth;
  const x = (Math.max(left, 0) + Math.min(right, innerWidth)) / 2;
  tip.value = isSeen ? { text, x, top, bottom } : null;
}

export function TipBox() {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const current = tip.value;
  useLayoutEffect(() => {
    const { current: element } = box;
    if (element === null || current === null) {
      return;
    }
    const { offsetWidth: width, offsetHeight: height } = element;
    const left = Math.min(Math.max(current.x - width / 2, MARGIN), innerWidth - width - MARGIN);
    const above = current.top - height - MARGIN;
    element.style.left = `${left}px`;
    element.style.top = `${above < MARGIN ? current.bottom + MARGIN : above}px`;
  });
  // What it says is the name of the mark, too; a screen reader needs it once.
  return (
    current !== null &&
    html`<div class="tip" aria-hidden="true" data-role="tip" ref=${box}>
      ${current.text.split("\n").map((line) => html`<div key=${line}>${line}</div>`)}
    </div>`
  );
}
