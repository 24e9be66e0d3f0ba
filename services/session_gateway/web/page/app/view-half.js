// @ts-check
/** The half of one person: language, what was said, and the button. */

import { html } from "./html.js";
import { choices, offered } from "./offer.js";
import { interfaceFor, languageName, languageNameIn, textsOf } from "./texts.js";
import { MAX_SHOWN } from "./utterances.js";
import { FollowingList } from "./view-list.js";
import { Said } from "./view-said.js";
import { TalkButton } from "./view-talk.js";

/** @import { Controller } from "./controller.js" */
/** @import { Text, TextKey } from "./texts.js" */
/** @import { Side, State } from "./types.js" */

/**
 * @param {{ side: Side, state: State, rotated: boolean, controller: Controller }} props
 */
export function Half({ side, state, rotated, controller }) {
  const mine = state.languages[side];
  const language = interfaceFor(mine) ?? state.interface;
  const text = textsOf(language);
  const note = noteOf(state, side, text);
  const noteId = `note-${side}`;
  return html`<section
    class=${`half half-${side} ${rotated ? "rotated" : ""}`}
    data-side=${side}
    lang=${language}
    aria-label=${text("half.name", { language: mine === "" ? side : languageNameIn(mine, language) })}
  >
    <${List} ...${{ side, state, text, language, controller }} />
    <p class="visually-hidden" role="status" lang=${mine || language}>${spoken(state, side)}</p>
    <div class="controls">
      <p class="note" id=${noteId} data-role="note" data-connection=${state.connection}>${note}</p>
      <${Choice} ...${{ side, state, text, controller }} />
      <${TalkButton}
        ...${{ side, state, text, controller, describedBy: noteId }}
        disabled=${state.languages.a === "" || state.languages.b === ""}
      />
    </div>
  </section>`;
}

/**
 * The newest finished words in this half's language, for screen readers.
 *
 * @param {State} state
 * @param {Side} side
 */
function spoken({ utterances }, side) {
  const last = utterances.findLast((each) => each.state === "done" && each.side !== side);
  return last?.translated ?? "";
}

/**
 * What this person should know now.
 *
 * @param {State} state
 * @param {Side} side
 * @param {Text} text
 */
function noteOf(state, side, text) {
  const { languages, offer, connection, hints } = state;
  if (connection === "reconnecting") {
    return text("half.reconnecting");
  }
  if (hints[side] !== "") {
    return text(/** @type {TextKey} */ (hints[side]));
  }
  if (offer.status !== "known") {
    return offer.status === "failed" ? text("half.offerFailed") : "";
  }
  const mine = languages[side];
  const theirs = languages[side === "a" ? "b" : "a"];
  const direction = offered(offer.directions, mine, theirs);
  if (mine !== "" && direction === undefined) {
    const named = interfaceFor(mine) ?? state.interface;
    const [from, to] = [languageNameIn(mine, named), languageNameIn(theirs, named)];
    return text("half.oneWay", { from, to });
  }
  return direction !== undefined && !direction.room ? text("half.busyNow") : "";
}

/**
 * @param {{ side: Side, state: State, text: Text, controller: Controller }} props
 */
function Choice({ side, state, text, controller }) {
  const { languages, offer } = state;
  const options = choices(languages, side, offer.directions);
  return html`<select
    class="language"
    data-role="language"
    aria-label=${text("half.language")}
    value=${languages[side]}
    disabled=${options.length === 0}
    onChange=${(/** @type {Event} */ event) => {
      controller.choose(side, /** @type {HTMLSelectElement} */ (event.currentTarget).value);
    }}
  >
    ${options.length === 0 && html`<option value="">…</option>`}
    ${options.map(({ code, busy, isOffered }) => {
      const mark = !isOffered ? text("half.notOffered") : busy ? text("half.busy") : "";
      return html`<option value=${code} selected=${code === languages[side]}>
        ${languageName(code)}${mark === "" ? "" : ` · ${mark}`}
      </option>`;
    })}
  </select>`;
}

/** @param {{ side: Side, state: State, text: Text, language: string, controller: Controller }} props */
function List({ side, state, text, language, controller }) {
  const { utterances, forgotten, playing, connection, sessionIds } = state;
  return html`<${FollowingList} role="group" label=${text("half.utterances")} shown=${utterances}>
    ${utterances.length === 0 && html`<p class="welcome">${welcome(state, text)}</p>`}
    ${forgotten > 0 && html`<p class="forgotten">${text("half.forgotten", { count: MAX_SHOWN })}</p>`}
    <ol data-role="utterances">
      ${utterances.map(
        (utterance) =>
          html`<${Said}
            key=${utterance.key}
            ...${{ side, utterance, connection, text, language, controller }}
            sessionId=${sessionIds[utterance.session] ?? ""}
            isPlaying=${utterance.key === playing}
          />`,
      )}
    </ol>
  <//>`;
}

/**
 * @param {State} state
 * @param {Text} text
 */
function welcome({ languages, offer, handsFree }, text) {
  if (languages.a !== "" && languages.b !== "") {
    return text(handsFree ? "half.welcomeFree" : "half.welcome");
  }
  return text(offer.status === "known" ? "half.noLanguages" : "half.loading");
}
