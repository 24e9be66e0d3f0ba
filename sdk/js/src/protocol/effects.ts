/** What a protocol asks its shell to do. */

import type { Failure } from "../errors.js";
import type { SessionEvent } from "../events.js";
import type { Ending } from "./endings.js";

/** `E`: the events of the app. */
export type Effect<E = SessionEvent> =
  /** Give this event to the app. */
  | { readonly do: "give"; readonly event: E }
  /** End the connection. If graceful, what is ready is still sent. */
  | { readonly do: "close"; readonly ending: Ending; readonly graceful: boolean }
  /** Connect to the next gateway after this many milliseconds. */
  | { readonly do: "retry"; readonly afterMs: number }
  /** It is closed, and the app has been given everything. */
  | { readonly do: "over" }
  /** It cannot continue. */
  | { readonly do: "fail"; readonly error: Failure };
