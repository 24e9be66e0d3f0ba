/** Which directions a scheduler offers. */

import { SessionRefusedError, SessionUnavailableError } from "./errors.js";
import { fieldsOf, integerOf, messagesOf, textOf } from "./protocol/json.js";
import { httpAddress, parseAddresses } from "./session/addresses.js";
import { refusalOf } from "./session/socket.js";

/** From this status on, a retry may help. */
const TOO_MANY_REQUESTS = 429;

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
  { token, signal }: { readonly token?: string; readonly signal?: AbortSignal } = {},
): Promise<Offer> {
  const [webSocketAddress = ""] = parseAddresses(address);
  const url = new URL("/v1/languages", httpAddress(webSocketAddress));
  try {
    const response = await fetch(url, {
      headers: token === undefined ? {} : { Authorization: `Bearer ${token}` },
      ...(signal === undefined ? {} : { signal }),
    });
    if (!response.ok) {
      throw refusal(response.status, await response.text());
    }
    return offerFrom(await response.json());
  } catch (error) {
    if (error instanceof SessionRefusedError || error instanceof SessionUnavailableError) {
      throw error;
    }
    const why = error instanceof Error ? error.message : String(error);
    const what = `${url.href} does not answer: ${why}`;
    throw new SessionUnavailableError("UNREACHABLE", what, 0, { cause: error });
  }
}

function offerFrom(answer: unknown): Offer {
  const fields = fieldsOf({ answer }, "answer");
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

function refusal(status: number, body: string): Error {
  const ending = refusalOf(status, body);
  if (ending.kind !== "refused") {
    return new Error(`HTTP status ${status}`);
  }
  const { reason, message, retryAfterMs } = ending.error;
  return status < TOO_MANY_REQUESTS
    ? new SessionRefusedError(reason, message)
    : new SessionUnavailableError(reason, message, retryAfterMs);
}
