/** Checks single values by the rules of the contract. Throws RangeError, which names them. */

import type { WebSocketConstructor } from "./socket.js";

const ID = /^[A-Za-z0-9._-]{1,128}$/;
const LANGUAGE = /^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$/;

export function checkId(name: string, value: string): void {
  if (!ID.test(value)) {
    throw new RangeError(`${name}: ${value} must be 1 to 128 characters of A-Z a-z 0-9 . _ -`);
  }
}

export function checkLanguage(name: string, value: unknown): string {
  if (typeof value !== "string" || !LANGUAGE.test(value)) {
    throw new RangeError(`${name}: ${String(value)} must be a language code such as en or zh-hant`);
  }
  return value;
}

export function checkNumber(name: string, value: number, least: number, most: number): void {
  if (!(value >= least && value <= most)) {
    throw new RangeError(`${name}: ${value} must be a number from ${least} to ${most}`);
  }
}

/** Checks text for people, such as a name. */
export function checkText(name: string, value: string, maxCharacters: number): string {
  if (typeof (value as unknown) !== "string" || value.length > maxCharacters) {
    throw new RangeError(`${name}: must be text of at most ${maxCharacters} characters`);
  }
  return value;
}

/** Returns the WebSocket of the app or of the runtime. */
export function checkWebSocket(given: WebSocketConstructor | undefined): WebSocketConstructor {
  const runtime: { readonly WebSocket?: WebSocketConstructor } = globalThis;
  const found = given ?? runtime.WebSocket;
  if (found === undefined) {
    throw new TypeError(
      "WebSocket: this JavaScript runtime has none (Node.js has one from version 22 on); pass " +
        'one, such as that of the package ws: import WebSocket from "ws"',
    );
  }
  return found;
}
