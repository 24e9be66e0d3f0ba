// @ts-check
/** Before a room is entered: what it is called, who is there, and what the user wants. */

import { html } from "../app/html.js";
import * as icons from "../app/icons.js";
import { refusalText } from "./texts.js";
import { LanguageField, NameField, OfferNote } from "./view-fields.js";

/** @import { ViewProps } from "./view-page.js" */

/** @param {ViewProps} props */
export function Lobby({ state, text, controller }) {
  const { refusal } = state;
  return html`<div class="start" data-view="lobby" lang=${state.interface}>
    ${
      refusal === ""
        ? html`<${Entrance} ...${{ state, text, controller }} />`
        : html`<${Refused} ...${{ state, text, controller }} />`
    }
  </div>`;
}

/** @param {ViewProps} props */
function Refused({ state, text, controller }) {
  return html`<div class="card" role="alert" data-refusal=${state.refusal}>
    <h2>${icons.warning()} ${text("refusal.heading")}</h2>
    <p>${refusalText(text, state.refusal)}</p>
    <button type="button" class="second" data-action="to-start" onClick=${() => controller.leave()}>
      ${text("room.start")}
    </button>
  </div>`;
}

/** @param {ViewProps} props */
function Entrance({ state, text, controller }) {
  const { room, invitation, busy, language, sound } = state;
  const all = { state, text, controller };
  const canSpeak = invitation?.role !== "listener" || room?.speak === "anyone";
  const isReady = !busy && language !== "";
  return html`<form
    class="card"
    data-role="enter"
    onSubmit=${(/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      const by = /** @type {HTMLButtonElement | null} */ (event.submitter);
      void controller.enter(by?.value === "speak");
    }}
  >
    <h2 dir="auto">${text("lobby.heading", { room: room?.name || text("room.unnamed") })}</h2>
    <${Present} ...${{ state, text }} />
    <div class="field">
      <label for="my-language">${text("me.listens")}</label>
      <${LanguageField} ...${all} speaks=${false} id="my-language" />
    </div>
    <${OfferNote} ...${{ state, text }} />
    <label class="check">
      <input
        type="checkbox"
        name="sound"
        checked=${sound}
        onChange=${(/** @type {Event} */ event) => {
          const { checked } = /** @type {HTMLInputElement} */ (event.currentTarget);
          void controller.setSound(checked);
        }}
      />
      <span>${text("sound.label")}</span>
    </label>
    <${NameField} ...${all} />
    <div class="buttons">
      <button
        type="submit"
        class="main"
        name="as"
        value="listen"
        data-action="listen"
        disabled=${!isReady}
      >
        ${text(busy ? "lobby.entering" : "lobby.listen")}
      </button>
      ${
        canSpeak &&
        html`<button
          type="submit"
          class="second"
          name="as"
          value="speak"
          data-action="speak"
          disabled=${!isReady}
        >
          ${text("lobby.speak")}
        </button>`
      }
    </div>
  </form>`;
}

/** @param {Pick<ViewProps, "state" | "text">} props */
function Present({ state: { attendance }, text }) {
  if (attendance === null) {
    return null;
  }
  const { speakers } = attendance;
  const names = speakers.map((each) => each.name || text("people.unnamed")).join(", ");
  return html`<p class="hint" data-role="present">
    ${speakers.length === 0 ? text("lobby.nobody") : text("lobby.speakers", { names })}
  </p>`;
}
