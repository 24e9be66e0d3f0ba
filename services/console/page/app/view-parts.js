// @ts-check
/** Small parts that all views share. */

import { html } from "./html.js";
import { ago, clock, coarse, duration, exact } from "./format.js";
import * as icons from "./icons.js";
import { directionName } from "./languages.js";
import { address } from "./router.js";
import { now } from "./state.js";
import { wordOf } from "./words.js";

/** @import { Children } from "./html.js" */
/** @import { Word } from "./words.js" */

/** A time as it is felt, with the exact one on hover. @param {{ ms: number | undefined }} props */
export function Ago({ ms }) {
  if (ms === undefined) {
    return html`<span class="none">–</span>`;
  }
  return html`<time datetime=${isoOf(ms)} title=${exact(ms)}>${ago(ms, now.value)}</time>`;
}

/** The time of the day, with the date on hover. @param {{ ms: number | undefined }} props */
export function Clock({ ms }) {
  if (ms === undefined) {
    return html`<span class="none">–</span>`;
  }
  return html`<time datetime=${isoOf(ms)} title=${exact(ms)}>${clock(ms)}</time>`;
}

/** For how long something has been so. @param {{ ms: number | undefined }} props */
export function Since({ ms }) {
  if (ms === undefined) {
    return html`<span class="none">–</span>`;
  }
  const past = Math.max(now.value - ms, 0);
  const text = past < 60_000 ? coarse(past) : duration(past);
  return html`<time datetime=${isoOf(ms)} title=${`since ${exact(ms)}`}>${text}</time>`;
}

/** @param {number} ms */
function isoOf(ms) {
  return new Date(Math.min(Math.max(ms, 0), 8.64e15)).toISOString();
}

/**
 * A state in a word, with its colour and what it means.
 *
 * @param {{ words: Readonly<Record<string, Word>>, value: string | undefined }} props
 */
export function Pill({ words, value }) {
  const { label, tone, meaning } = wordOf(words, value);
  return html`<span class=${`pill ${tone}`} title=${meaning} data-state=${value}>${label}</span>`;
}

/** @param {{ src: string, tgt: string }} props */
export function Direction({ src, tgt }) {
  return html`<span class="direction" title=${directionName(src, tgt)}
    >${src}<span class="arrow" aria-label=" to "> → </span>${tgt}</span
  >`;
}

/**
 * A link to a node, job, session or room; a dash if there is none.
 *
 * @param {{ to: "node" | "job" | "session" | "room", id: string | undefined, short?: boolean }} props
 */
export function IdLink({ to, id, short = false }) {
  if (id === undefined || id === "") {
    return html`<span class="none">–</span>`;
  }
  return html`<a class=${short ? "id short" : "id"} href=${address(to, id)} title=${id}>${id}</a>`;
}

/**
 * How much of something is taken, as a bar. The numbers are beside it.
 *
 * @param {{ share: number, tone?: string }} props
 */
export function Meter({ share, tone = "info" }) {
  const width = Math.round(Math.min(Math.max(share, 0), 1) * 100);
  return html`<svg
    class=${`meter ${tone}`}
    viewBox="0 0 100 6"
    preserveAspectRatio="none"
    aria-hidden="true"
  >
    <rect class="track" width="100" height="6" rx="3" />
    ${width > 0 && html`<rect class="fill" width=${width} height="6" rx="3" />`}
  </svg>`;
}

/**
 * @param {{ title: string, children?: Children, id?: string, tools?: Children, wide?: boolean }} props
 */
export function Card({ title, children, id, tools, wide = false }) {
  const name = id ?? title.toLowerCase().replace(/[^a-z]+/g, "-");
  return html`<section
    class=${wide ? "card wide" : "card"}
    id=${name}
    aria-labelledby=${`${name}-title`}
  >
    <header class="card-head">
      <h2 id=${`${name}-title`}>${title}</h2>
      ${tools}
    </header>
    ${children}
  </section>`;
}

/** Names and values. @param {{ rows: [string, Children][] }} props */
export function Facts({ rows }) {
  return html`<dl class="facts">
    ${rows.map(
      ([name, value]) =>
        html`<div key=${name}>
          <dt>${name}</dt>
          <dd>${value}</dd>
        </div>`,
    )}
  </dl>`;
}

/**
 * Nothing to show, and why, and what to do.
 *
 * @param {{ title: string, children?: Children, name?: string }} props
 */
export function Empty({ title, children, name = "empty" }) {
  return html`<div class="empty" data-role=${name}>
    <p class="empty-title">${title}</p>
    ${children}
  </div>`;
}

/** Gray shapes while the first document is on its way. @param {{ cards?: number, rows?: number }} props */
export function Skeleton({ cards = 0, rows = 0 }) {
  return html`<div class="skeleton" data-role="loading" role="status">
    <span class="visually-hidden">Loading</span>
    ${cards > 0 && html`<div class="numbers">${repeat(cards, "skeleton-card")}</div>`}
    ${rows > 0 && html`<div class="card">${repeat(rows, "skeleton-row")}</div>`}
  </div>`;
}

/**
 * @param {number} times
 * @param {string} className
 */
function repeat(times, className) {
  return Array.from(
    { length: times },
    (_, index) => html`<div key=${index} class=${className}></div>`,
  );
}

/**
 * @param {{ tone?: "warn" | "bad", title: string, children?: Children, tools?: Children,
 *   role?: string, name?: string }} props
 */
export function Banner({ tone = "warn", title, children, tools, role = "status", name }) {
  return html`<div class=${`banner ${tone}`} role=${role} data-role=${name}>
    ${icons.warning()}
    <div class="banner-words">
      <p class="banner-title">${title}</p>
      ${children}
    </div>
    ${tools}
  </div>`;
}

/** For how long, in one unit. @param {{ ms: number }} props */
export function For({ ms }) {
  return html`<span title=${exact(ms)} aria-live="off">${coarse(now.value - ms)}</span>`;
}
