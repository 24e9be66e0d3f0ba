/** Starts audio contexts. Browsers start one only after a tap, and stop it for phone calls. */

/** How long a browser gets to start a context; if it does not, nobody has tapped yet. */
const START_MS = 2000;

/**
 * Starts a context, unless it is running. Returns whether it is.
 *
 * @param stopped ends the wait, with false.
 */
export async function starts(context: AudioContext, stopped?: Promise<void>): Promise<boolean> {
  if (context.state === "running") {
    return true;
  }
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => {
      resolve(false);
    }, START_MS);
    void stopped?.then(() => {
      resolve(false);
    });
  });
  const resumed = context.resume().then(
    () => true,
    () => false,
  );
  try {
    return await Promise.race([resumed, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Starts a context again that the browser has stopped, for example for a phone call. */
export function restart(context: AudioContext): void {
  if (context.state !== "running" && context.state !== "closed") {
    context.resume().catch(() => undefined);
  }
}
