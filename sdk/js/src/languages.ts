/** Which directions a scheduler offers. */

import { SessionRefusedError, SessionUnavailableError } from "./errors.js";
import { type Fields, integerOf, messagesOf, textOf } from "./protocol/json.js";
import { httpAddress, parseAddresses } from "./session/addresses.js";
import { request } from "./session/http.js";

/** A direction that nodes offer. */
export interface OfferedDirection {
  readonly src: string;
  readonly tgt: string;
  /** Whether nodes can speak the translation. */
  readonly speech: boolean;
  /** Whether a node has room now. */
  readonly room: boolean;
}

export interface Offer {
  readonly directions: readonly OfferedDirection[];
  /** When the scheduler looked, in milliseconds since the epoch. */
  readonly asOfMs: number;
}

/**
 * Asks a gateway which directions there are nodes for.
 *
 * Throws SessionRefusedError if the gateway refuses the token or the page, such as UNAUTHENTICATED;
 * SessionUnavailableError if it cannot be reached or cannot answer now.
 */
export async function offeredDirections(
  address: string,
  options: { readonly token?: string; readonly signal?: AbortSignal } = {},
): Promise<Offer> {
  const [webSocketAddress = ""] = parseAddresses(address);
  const url = new URL("/v1/languages", httpAddress(webSocketAddress));
  const answer = await request(url, options, offerFrom);
  switch (answer.kind) {
    case "answered":
      return answer.value;
    case "refused":
      throw new SessionRefusedError(answer.error.reason, answer.error.message);
    case "unavailable": {
      const { reason, message, retryAfterMs } = answer.error;
      throw new SessionUnavailableError(reason, message, retryAfterMs);
    }
    case "unreachable": {
      const { message, cause } = answer;
      throw new SessionUnavailableError("UNREACHABLE", message, 0, { cause });
    }
  }
}

function offerFrom(fields: Fields): Offer {
  return {
    directions: messagesOf(fields, "directions").map((each) => ({
      src: textOf(each, "src"),
      tgt: textOf(each, "tgt"),
      speech: each.speech === true,
      room: each.room === true,
    })),
    asOfMs: integerOf(fields, "asOfMs"),
  };
}
