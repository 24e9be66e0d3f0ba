// @ts-check
/** Finds a node, a job, a session or a room by its id, from everywhere. */

import { signal } from "@preact/signals";
import { useRef } from "preact/hooks";

import { get } from "./api.js";
import { html } from "./html.js";
import * as icons from "./icons.js";
import { address } from "./router.js";
import { me, navigate } from "./state.js";

/** @import { Match } from "./types.js" */

const TYPING_MS = 200;
const KINDS = { node: "Node", job: "Job", session: "Session", room: "Room" };

const matches = /** @type {import("@preact/signals").Signal<readonly Match[]>} */ (signal([]));
const chosen = signal(0);
const isOpen = signal(false);
const message = signal("");
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let asked = "";

/** @param {string} text */
async function ask(text) {
  asked = text;
  if (text === "") {
    isOpen.value = false;
    return;
  }
  /** @type {readonly Match[]} */
  let found = [];
  let said = "No id begins with this.";
  try {
    const answer = await get(`search?q=${encodeURIComponent(text)}`);
    found = /** @type {{ matches: Match[] }} */ (answer).matches;
  } catch (error) {
    said = /** @type {Error} */ (error).message;
  }
  if (asked !== text) {
    return;
  }
  // The match that was chosen stays chosen: an answer may come between two arrow keys.
  const kept = matches.value[chosen.value];
  chosen.value = Math.max(
    0,
    found.findIndex((match) => isOpen.value && match.kind === kept?.kind && match.id === kept.id),
  );
  matches.value = found;
  message.value = found.length === 0 ? said : "";
  isOpen.value = true;
}

/** @param {Match} match */
function hrefOf(match) {
  return address(match.kind, match.id);
}

export function GlobalSearch() {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  if (me.value === null) {
    return null;
  }
  const leave = () => {
    asked = "";
    isOpen.value = false;
    if (input.current !== null) {
      input.current.value = "";
      input.current.blur();
    }
  };
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const number = matches.value.length;
    if (step !== 0 && number > 0) {
      event.preventDefault();
      chosen.value = (chosen.value + step + number) % number;
    } else if (event.key === "Enter") {
      const match = matches.value[chosen.value];
      if (isOpen.value && match !== undefined) {
        navigate(hrefOf(match));
        leave();
      }
    } else if (event.key === "Escape") {
      leave();
    }
  };
  return html`<div class="global-search" role="search">
    <label class="field main">
      <span class="visually-hidden">Find a node, job, session or room by id</span>
      ${icons.search()}
      <input
        type="search"
        role="combobox"
        aria-expanded=${isOpen.value}
        aria-controls="matches"
        aria-autocomplete="list"
        aria-activedescendant=${isOpen.value && matches.value.length > 0 ? `match-${chosen.value}` : undefined}
        placeholder="Find an id"
        maxlength="128"
        autocomplete="off"
        autocapitalize="off"
        spellcheck=${false}
        data-search="global"
        ref=${input}
        onInput=${(/** @type {Event} */ event) => {
          const text = /** @type {HTMLInputElement} */ (event.currentTarget).value.trim();
          clearTimeout(timer);
          timer = setTimeout(() => void ask(text), TYPING_MS);
        }}
        onKeyDown=${onKeyDown}
        onBlur=${() => setTimeout(() => (isOpen.value = false), 150)}
      />
    </label>
    <ul id="matches" role="listbox" aria-label="Matches" class="matches" hidden=${!isOpen.value}>
      ${matches.value.map(
        (match, index) =>
          html`<li
            key=${`${match.kind}/${match.id}`}
            id=${`match-${index}`}
            role="option"
            aria-selected=${index === chosen.value}
            onMouseDown=${(/** @type {Event} */ event) => {
              event.preventDefault();
              navigate(hrefOf(match));
              leave();
            }}
          >
            <span class="match-kind">${KINDS[match.kind] ?? match.kind}</span>
            <span class="id">${match.id}</span>
            ${match.label && match.label !== match.id && html`<span class="muted">${match.label}</span>`}
          </li>`,
      )}
      ${message.value !== "" && html`<li class="muted" role="option" aria-disabled="true" aria-selected="false">${message.value}</li>`}
    </ul>
  </div>`;
}
