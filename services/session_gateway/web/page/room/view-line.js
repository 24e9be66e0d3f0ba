// @ts-check
/** One utterance of a room: its words, who said it, and what became of it. */

import { Component, html } from "../app/html.js";
import * as icons from "../app/icons.js";
import { languageNameIn, reasonText } from "../app/texts.js";
import { EN } from "./text-en.js";

/** @import { Controller } from "./controller.js" */
/** @import { RoomText, RoomTextKey } from "./texts.js" */
/** @import { Interface, Line, RoomReceipt } from "./types.js" */

/**
 * @typedef {object} LineProps
 * @property {Line} line
 * @property {RoomReceipt | null} receipt
 * @property {boolean} isPlaying
 * @property {RoomText} text
 * @property {Interface} shown the language of the page.
 * @property {Controller} controller
 */

/** @extends {Component<LineProps>} */
export class SaidLine extends Component {
  /**
   * @override
   * @param {LineProps} next
   */
  shouldComponentUpdate(next) {
    const { props } = this;
    return (
      next.line !== props.line ||
      next.receipt !== props.receipt ||
      next.isPlaying !== props.isPlaying ||
      next.shown !== props.shown
    );
  }

  /** @override */
  render() {
    const { line, receipt, isPlaying, text, shown, controller } = this.props;
    const { key, index, state, mine, speaker, language, spoken, source, hasSpeech } = line;
    const who = mine ? text("line.you") : speaker;
    const status = statusOf(line, text);
    return html`<li
      class="said"
      data-state=${state}
      data-index=${index ?? undefined}
      data-language=${language}
      data-speaker=${mine ? "a" : "b"}
      data-replayed=${line.replayed}
    >
      ${who !== "" && html`<p class="who" data-role="who" dir="auto">${who}</p>`}
      <p class="big" data-role="text" lang=${language} dir="auto">${line.text}</p>
      ${
        source !== "" &&
        html`<p class="small" data-role="source" lang=${spoken} dir="auto">${source}</p>`
      }
      ${status !== "" && html`<p class="status" data-role="status">${status}</p>`}
      ${receipt !== null && html`<${Receipt} ...${{ receipt, text, shown }} />`}
      ${
        hasSpeech &&
        html`<button
          type="button"
          class="tool"
          data-action="replay"
          aria-label=${text(isPlaying ? "said.stop" : "said.replay")}
          title=${text(isPlaying ? "said.stop" : "said.replay")}
          onClick=${() => controller.replay(key)}
        >
          ${isPlaying ? icons.stop() : icons.speaker()}
        </button>`
      }
    </li>`;
  }
}

/**
 * In which languages the room has it, and in which it has not.
 *
 * @param {{ receipt: RoomReceipt, text: RoomText, shown: Interface }} props
 */
function Receipt({ receipt: { delivered, missing }, text, shown }) {
  const names = delivered.map((code) => languageNameIn(code, shown));
  const languages = new Intl.ListFormat(shown, { type: "unit" }).format(names);
  return html`<div class="receipt" data-role="receipt" data-delivered=${delivered.join(" ")}>
    ${delivered.length > 0 && html`<p>${text("line.delivered", { languages })}</p>`}
    ${delivered.length + missing.length === 0 && html`<p>${text("line.nobody")}</p>`}
    ${missing.map(({ language, reason }) => {
      const why = reasonText(text, "missing", reason);
      return html`<p class="bad" data-missing=${language} data-reason=${reason}>
        ${text("line.notIn", { language: languageNameIn(language, shown), why })}
      </p>`;
    })}
  </div>`;
}

/**
 * @param {Line} line
 * @param {RoomText} text
 */
function statusOf({ state, joined, reason, count, text: words }, text) {
  switch (state) {
    case "held":
      return text(joined ? "said.joined" : "said.held");
    case "no-speech":
      return text("said.noSpeech");
    case "missing": {
      const why = whyOf(reason, text);
      return count > 1 ? text("line.several", { count, why }) : text("said.missing", { why });
    }
    case "said":
      return words === "" ? text("said.empty") : "";
  }
}

/**
 * @param {string} reason
 * @param {RoomText} text
 */
function whyOf(reason, text) {
  const key = `line.${reason}`;
  return key in EN ? text(/** @type {RoomTextKey} */ (key)) : reasonText(text, "missing", reason);
}
