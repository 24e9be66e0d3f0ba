// @ts-check
/** Looks up texts of the room page, which has those of the talk page, too. No I/O. */

import { lookUpIn, TEXTS } from "../app/texts.js";
import { EN } from "./text-en.js";
import { ES } from "./text-es.js";
import { ZH } from "./text-zh.js";

/** @import { Interface } from "./types.js" */
/** @typedef {keyof typeof EN} RoomTextKey */
/** @typedef {RoomTextKey | import("../app/texts.js").TextKey} Key */
/** @typedef {(key: Key, values?: Record<string, string | number>) => string} RoomText */

/** @type {Record<Interface, Record<RoomTextKey, string>>} */
export const ROOM_TEXTS = { en: EN, es: ES, zh: ZH };

/**
 * @param {Interface} language
 * @returns {RoomText}
 */
export function roomTextsOf(language) {
  return lookUpIn({ ...TEXTS[language], ...ROOM_TEXTS[language] });
}

/**
 * Why a room cannot be entered.
 *
 * @param {RoomText} text
 * @param {string} reason
 */
export function refusalText(text, reason) {
  const key = `refusal.${reason}`;
  return text(key in EN ? /** @type {RoomTextKey} */ (key) : "refusal.OTHER");
}
