// @ts-check
/** What is around every view: navigation, search, the state of the connection, messages. */

import { html } from "./html.js";
import { clock, coarse } from "./format.js";
import * as icons from "./icons.js";
import { address } from "./router.js";
import {
  heardAt,
  keysOpen,
  me,
  notice,
  now,
  retryAt,
  retryNow,
  route,
  shown,
  signOut,
  status,
  trouble,
} from "./state.js";
import { ConfirmDialog, Dialog } from "./view-dialog.js";
import { Banner, For } from "./view-parts.js";
import { GlobalSearch } from "./view-search.js";
import { TipBox } from "./view-tip.js";
import { SOURCES } from "./words.js";

/** @import { Children } from "./html.js" */
/** @import { View } from "./router.js" */

/** @type {readonly { to: Exclude<View, "unknown">, name: string, icon: () => Children, also: View }[]} */
const PLACES = [
  { to: "overview", name: "Overview", icon: icons.overview, also: "overview" },
  { to: "nodes", name: "Nodes", icon: icons.nodes, also: "node" },
  { to: "jobs", name: "Jobs", icon: icons.jobs, also: "job" },
  { to: "sessions", name: "Sessions", icon: icons.sessions, also: "session" },
  { to: "rooms", name: "Rooms", icon: icons.rooms, also: "room" },
  { to: "instances", name: "Instances", icon: icons.instances, also: "instances" },
];

const KEYS = [
  ["/", "search"],
  ["↑ ↓", "move through rows; in the matrix also ← →"],
  ["Enter", "open the row or the cell"],
  ["Esc", "close a dialog, leave a field"],
  ["?", "show this list"],
];

/** @param {{ children: Children }} props */
export function Shell({ children }) {
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="top">
      <a class="brand" href="/" aria-label="Lingua console, overview">
        <svg class="brand-mark" viewBox="0 0 24 24" aria-hidden="true">
          <path class="brand-a" d="M3 4h13a2 2 0 0 1 2 2v5a2 2 0 0 1-2 2H9l-4 3v-3H3V4Z" />
          <path class="brand-b" d="M20 10h1v10l-4-3h-6v-3h7a2 2 0 0 0 2-2v-2Z" />
        </svg>
        <span>Lingua</span>
      </a>
      <nav class="places" aria-label="Main" hidden=${route.value.view === "sign-in"}>
        ${PLACES.map(({ to, name, icon, also }) => {
          const isHere = route.value.view === to || route.value.view === also;
          return html`<a
            key=${to}
            href=${address(to)}
            aria-current=${isHere ? "page" : undefined}
            data-place=${to}
            >${icon()}<span>${name}</span></a
          >`;
        })}
      </nav>
      <${GlobalSearch} />
      <${Connection} />
      <${Who} />
    </header>
    <main id="main" tabindex="-1">
      <${Lost} />
      <${Problems} />
      ${children}
    </main>
    <${Foot} />
    <${ConfirmDialog} />
    ${keysOpen.value && html`<${Keys} />`}
    <div class="notice-box" role="status" data-role="notice">
      ${notice.value !== "" && html`<p class="notice">${notice.value}</p>`}
    </div>
    <${TipBox} />
  `;
}

const WORDS = {
  ...{ connecting: "Connecting", live: "Live", lost: "Reconnecting" },
  ...{ paused: "Paused", ended: "Not live" },
};

function Connection() {
  if (me.value === null) {
    return null;
  }
  const { value } = status;
  return html`<p class="connection" data-role="connection" data-state=${value} role="status">
    <span class="dot" aria-hidden="true"></span><span>${WORDS[value]}</span>
  </p>`;
}

function Who() {
  const { value } = me;
  if (value === null) {
    return null;
  }
  return html`<div class="who">
    ${
      value.auth &&
      html`<span class="who-name" title=${`role ${value.role}`} data-role="who"
          >${value.name || value.role}<small>${value.role}</small></span
        >
        <button type="button" class="link" data-action="sign-out" onClick=${() => void signOut()}>
          Sign out
        </button>`
    }
    <button
      type="button"
      class="link keys-button"
      aria-label="Keyboard shortcuts"
      title="Keyboard shortcuts (?)"
      data-action="keys"
      onClick=${() => (keysOpen.value = true)}
    >
      ${icons.keyboard()}
    </button>
  </div>`;
}

/** The connection to the console is gone: what is shown is old. */
function Lost() {
  if (status.value !== "lost" || shown.value === null) {
    return null;
  }
  const left = Math.max(retryAt.value - Date.now(), 0);
  // Read so that the countdown runs.
  void now.value;
  return html`<${Banner}
    name="lost"
    title="Connection lost"
    tools=${html`<button type="button" class="button" data-action="retry" onClick=${retryNow}>
      Try now
    </button>`}
  >
    <p>
      ${`What you see is from ${clock(heardAt.value)}. `}<span aria-live="off"
        >${left > 1500 ? `Trying again in ${coarse(left)}.` : "Trying again."}</span
      >
    </p>
  <//>`;
}

/** A service does not answer the console: parts of the document are old. */
function Problems() {
  const problems = Object.entries(shown.value?.document.problems ?? {});
  if (trouble.value !== null) {
    problems.push(["document", trouble.value]);
  }
  return problems.map(
    ([source, { message, since_ms: sinceMs }]) =>
      html`<${Banner}
        key=${source}
        name=${`stale-${source}`}
        title=${`${SOURCES[source] ?? source} may be out of date`}
      >
        <p>
          ${"Nothing new for "}<${For} ms=${sinceMs} />${`, since ${clock(sinceMs)}: ${message}`}
        </p>
      <//>`,
  );
}

function Foot() {
  const { value } = me;
  return (
    value !== null &&
    html`<footer class="foot">
      <span>Lingua Scheduler ${value.version}</span>
      <span class="foot-instance">console ${value.instance}</span>
      <span>times in ${Intl.DateTimeFormat().resolvedOptions().timeZone}</span>
      ${
        value.links.grafana &&
        html`<a href=${safeUrl(value.links.grafana)} target="_blank" rel="noopener noreferrer"
          >Grafana ${icons.outside()}</a
        >`
      }
    </footer>`
  );
}

/** Only pages of the web: a setting must not become a script. @param {string} url */
export function safeUrl(url) {
  return /^https?:\/\//i.test(url) ? url : undefined;
}

function Keys() {
  return html`<${Dialog} name="keys" title="Keys" close=${() => (keysOpen.value = false)}>
    <dl class="keys">
      ${KEYS.map(
        ([key, meaning]) =>
          html`<div key=${key}>
            <dt><kbd>${key}</kbd></dt>
            <dd>${meaning}</dd>
          </div>`,
      )}
    </dl>
    <div class="dialog-buttons">
      <button
        type="button"
        class="button"
        data-action="dismiss"
        onClick=${() => (keysOpen.value = false)}
      >
        Close
      </button>
    </div>
  <//>`;
}
