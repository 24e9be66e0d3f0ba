// @ts-check
/** In a room: what is said, and below it what the user can do. */

import { html } from "../app/html.js";
import * as icons from "../app/icons.js";
import { languageNameIn } from "../app/texts.js";
import { MAX_SHOWN } from "../app/utterances.js";
import { FollowingList } from "../app/view-list.js";
import { TalkButton } from "../app/view-talk.js";
import { connectionOf } from "./state.js";
import { LanguageField } from "./view-fields.js";
import { SaidLine } from "./view-line.js";
import { Panel } from "./view-panel.js";

/** @import { TextKey } from "../app/texts.js" */
/** @import { ViewProps } from "./view-page.js" */

/** @param {ViewProps} props */
export function Inside({ state, text, controller }) {
  const { speaks, closed, panel } = state;
  const all = { state, text, controller };
  const hasPanel = speaks && !closed;
  return html`<div
    class=${`inside ${hasPanel ? "with-panel" : ""}`}
    data-view="inside"
    data-role=${speaks ? "speaker" : "listener"}
    data-panel=${panel}
    lang=${state.interface}
  >
    <section class="half half-a captions" aria-label=${text("room.captions")}>
      <${Captions} ...${all} />
      ${
        closed
          ? html`<${Closed} ...${all} />`
          : speaks
            ? html`<${SpeakerControls} ...${all} />`
            : html`<${ListenerControls} ...${all} />`
      }
    </section>
    ${hasPanel && html`<${Panel} ...${all} />`}
  </div>`;
}

/** @param {ViewProps} props */
function Captions({ state, text, controller }) {
  const { lines, pending, forgotten, playing, receipts, speaks, interface: shown } = state;
  const isEmpty = lines.length === 0 && pending.length === 0;
  const welcome = speaks ? "room.quietHost" : "room.quiet";
  return html`<${FollowingList}
    role="log"
    label=${text("room.captions")}
    shown=${`${lines.length + forgotten} ${lines.at(-1)?.key} ${pending.length}`}
  >
    ${isEmpty && html`<p class="welcome">${text(welcome)}</p>`}
    ${forgotten > 0 && html`<p class="forgotten">${text("half.forgotten", { count: MAX_SHOWN })}</p>`}
    <ol data-role="lines">
      ${lines.map(
        (line) =>
          html`<${SaidLine}
            key=${line.key}
            ...${{ line, text, shown, controller }}
            receipt=${(line.index === null ? null : receipts[line.index]) ?? null}
            isPlaying=${line.key === playing}
          />`,
      )}
      ${pending.map(
        (index) =>
          html`<li key=${`p${index}`} class="said" data-state="waiting" data-speaker="a">
            <p class="status">${text("said.waiting")}</p>
          </li>`,
      )}
    </ol>
  <//>`;
}

/** @param {ViewProps} props */
function ListenerControls({ state, text, controller }) {
  const { sound } = state;
  const connection = connectionOf(state);
  const note = connection === "reconnecting" ? text("room.reconnecting") : "";
  return html`<div class="controls">
    <p class="note" data-role="note" data-connection=${connection} role="status">${note}</p>
    <label class="visually-hidden" for="listen-language">${text("me.listens")}</label>
    <${LanguageField} ...${{ state, text, controller }} speaks=${false} id="listen-language" />
    <button
      type="button"
      class="talk sound"
      data-action="sound"
      aria-pressed=${sound}
      onClick=${() => void controller.setSound(!sound)}
    >
      ${sound ? icons.speaker() : icons.muted()}
      <span class="talk-label">${text(sound ? "sound.on" : "sound.off")}</span>
    </button>
  </div>`;
}

/** @param {ViewProps} props */
function SpeakerControls({ state, text, controller }) {
  const { hints, language, speaking } = state;
  const connection = connectionOf(state);
  const hint = hints.a === "" ? "" : text(/** @type {TextKey} */ (hints.a));
  const note = connection === "reconnecting" ? text("half.reconnecting") : hint;
  return html`<div class="controls">
    <p class="note" id="talk-note" data-role="note" data-connection=${connection} role="status">
      ${note}
    </p>
    <p class="language spoken" data-role="spoken">
      <span class="hint">${text("me.speaks")}</span>
      <strong>${languageNameIn(language, state.interface)}</strong>
    </p>
    <${TalkButton}
      side="a"
      ...${{ state, text, controller, describedBy: "talk-note" }}
      disabled=${speaking === "idle" || speaking === "lost"}
    />
  </div>`;
}

/** @param {ViewProps} props */
function Closed({ text, controller }) {
  return html`<div class="controls closed" data-role="closed" role="status">
    <p>${text("room.closed")}</p>
    <button type="button" class="second" data-action="to-start" onClick=${() => controller.leave()}>
      ${text("room.start")}
    </button>
  </div>`;
}
