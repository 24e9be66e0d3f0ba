/** How a connection can end, and what the gateway's close codes mean. No I/O, no clock. */

import type { FieldViolation } from "../errors.js";

/** An error as the gateway reports it. */
export interface ServerError {
  /** An ErrorReason of the contract without its prefix. */
  readonly reason: string;
  readonly message: string;
  readonly retryAfterMs: number;
  readonly fieldViolations: readonly FieldViolation[];
  readonly metadata: Readonly<Record<string, string>>;
}

export type Ending =
  /** The connection broke, or was ended because the gateway is not responding. */
  | { readonly kind: "lost"; readonly why: string; readonly silent?: boolean }
  /** The gateway asked the client to connect elsewhere, after this many more milliseconds. */
  | { readonly kind: "moved"; readonly afterMs: number; readonly why: string }
  /** The gateway gave an error as the reason. If `final`, it said not to come back. */
  | { readonly kind: "refused"; readonly error: ServerError; readonly final: boolean }
  /** The gateway refused the token; the next one may be accepted. */
  | { readonly kind: "expired"; readonly why: string }
  /** The session is closed. */
  | { readonly kind: "left" };

export function serverError(reason: string, message: string, retryAfterMs = 0): ServerError {
  return { reason, message, retryAfterMs, fieldViolations: [], metadata: {} };
}

export function refused(error: ServerError, final = false): Ending {
  return { kind: "refused", error, final };
}

export function lost(why: string, silent = false): Ending {
  return silent ? { kind: "lost", why, silent } : { kind: "lost", why };
}

export function inWords(ending: Ending): string {
  switch (ending.kind) {
    case "refused":
      return `${ending.error.reason}: ${ending.error.message}`;
    case "left":
      return "";
    case "lost":
    case "moved":
    case "expired":
      return ending.why;
  }
}

export const GOING_AWAY = 1001;
const QUOTA = 4429;

interface Meaning {
  readonly reason: string;
  readonly final: boolean;
  readonly message: string;
}

/** Codes that stand for a reason, in case no error event came before. */
const MEANINGS: ReadonlyMap<number, Meaning> = new Map([
  [4400, { reason: "INVALID_MESSAGE", final: true, message: "the gateway refused a message" }],
  [4401, { reason: "UNAUTHENTICATED", final: false, message: "the token is missing or expired" }],
  [4403, { reason: "PERMISSION_DENIED", final: true, message: "the token does not permit this" }],
  [4404, { reason: "SESSION_NOT_FOUND", final: true, message: "the gateway has no such session" }],
  [4409, { reason: "SESSION_TAKEN_OVER", final: true, message: "another client has resumed it" }],
  [4413, { reason: "INVALID_MESSAGE", final: true, message: "a message was too large" }],
  [QUOTA, { reason: "QUOTA_EXCEEDED", final: false, message: "too much at once" }],
]);

/** After these, a gateway keeps the connection. So they are not why it ended. */
const PASSING = new Set(["BAD_AUDIO", "QUOTA_EXCEEDED"]);

/**
 * Returns why a connection ended.
 *
 * @param code of the close frame; 1006 if there was none.
 * @param said the text in the close frame.
 * @param last the gateway's last event, if that was an error.
 */
export function endingOfClose(code: number, said: string, last: ServerError | null): Ending {
  const meaning = MEANINGS.get(code);
  if (meaning !== undefined) {
    const error = last ?? serverError(meaning.reason, said || meaning.message);
    return refused(error, meaning.final);
  }
  if (code === GOING_AWAY) {
    return { kind: "moved", afterMs: 0, why: said || "the gateway is going away" };
  }
  if (last !== null && !PASSING.has(last.reason)) {
    return refused(last);
  }
  return lost(`the connection ended with code ${code}${said ? `: ${said}` : ""}`);
}
