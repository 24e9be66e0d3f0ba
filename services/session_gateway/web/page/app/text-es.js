// @ts-check
/** The page's texts in Spanish. */

/** @type {Record<keyof typeof import("./text-en.js").EN, string>} */
export const ES = {
  "page.title": "Lingua: hablar cara a cara",
  "page.interface": "Idioma de la página",
  "page.handsFree": "Manos libres",
  "page.turn": "Girar la otra mitad",
  "page.dismiss": "Cerrar",
  "page.restart": "Empezar de nuevo",
  "page.detail": "Detalle técnico",

  "half.name": "Mitad en {language}",
  "half.language": "Su idioma",
  "half.busy": "ocupado",
  "half.notOffered": "no disponible",
  "half.loading": "Cargando idiomas…",
  "half.noLanguages":
    "Todavía no hay traductores conectados. Los idiomas aparecerán aquí en cuanto haya uno.",
  "half.offerFailed": "No se pueden cargar los idiomas. Reintentando…",
  "half.welcome": "Mantenga pulsado el botón y hable. Sus palabras aparecerán aquí, traducidas.",
  "half.welcomeFree": "Toque el botón y hable. Sus palabras aparecerán aquí, traducidas.",
  "half.oneWay":
    "No hay ningún traductor conectado de {from} a {to}. Lo que diga puede quedar sin traducir.",
  "half.busyNow": "Todos los traductores están ocupados. Puede tardar un poco más.",
  "half.reconnecting": "Se perdió la conexión; reconectando. Sus palabras se conservan.",
  "half.utterances": "Lo que se ha dicho",
  "half.forgotten": "Solo se muestran las últimas {count}.",

  "talk.hold": "Mantener para hablar",
  "talk.tap": "Tocar para hablar",
  "talk.preparing": "Un momento…",
  "talk.recording": "Hable ahora",
  "talk.listening": "Escuchando…",
  "talk.hearing": "Le oigo…",
  "talk.paused": "Reproduciendo…",
  "talk.release": "Suelte para traducir",
  "talk.stop": "Toque para parar",
  "talk.wait": "Micrófono en pausa",

  "hint.ready": "El micrófono está listo. Mantenga pulsado el botón y hable.",
  "hint.short": "Demasiado corto. Mantenga pulsado el botón mientras habla.",
  "hint.other": "La otra persona está hablando.",

  "said.speaking": "Escuchando…",
  "said.sending": "Enviando…",
  "said.kept": "Guardado hasta que haya conexión",
  "said.waiting": "Traduciendo…",
  "said.held": "La frase continúa…",
  "said.joined": "Continúa en la línea siguiente",
  "said.noSpeech": "No se oyó ninguna voz",
  "said.missing": "Falta: {why}",
  "said.empty": "(sin palabras)",
  "said.replay": "Volver a oír",
  "said.stop": "Parar",
  "said.facts": "Detalles",

  "facts.node": "Traducido por",
  "facts.attempts": "Intentos",
  "facts.waited": "Desde el final de la voz hasta la traducción",
  "facts.job": "Trabajo",
  "facts.timeline": "En qué se fue el tiempo",
  "facts.none": "No hay detalles de esta.",
  "time.audio": "Voz",
  "time.pause": "Pausa",
  "time.dispatch": "Buscar un traductor",
  "time.ASR": "Reconocer",
  "time.SEMANTIC": "Comprender",
  "time.NMT": "Traducir",
  "time.TTS": "Hablar",
  "time.TONE": "Tono",
  "time.OTHER": "Otro paso",
  "time.node": "En el traductor",
  "time.rest": "Resto en el traductor",
  "time.deliver": "Entrega",

  "connection.idle": "Listo",
  "connection.connecting": "Conectando…",
  "connection.connected": "Conectado",
  "connection.reconnecting": "Reconectando…",
  "connection.lost": "Sin conexión",

  "token.title": "Clave de acceso",
  "token.needed": "Este servicio necesita una clave de acceso. Pídala a quien lo administra.",
  "token.refused": "Esta clave no es válida o ha caducado. Introduzca otra.",
  "token.checking": "Comprobando…",
  "token.label": "Clave",
  "token.use": "Continuar",
  "token.note": "Se guarda solo en esta pestaña, hasta que la cierre.",

  "missing.NO_CAPABLE_NODE": "no hay ningún traductor conectado para estos idiomas.",
  "missing.ALL_CANDIDATES_FULL_OR_FAILED": "todos los traductores estaban ocupados.",
  "missing.BOUND_NODE_FULL": "el traductor de esta frase estaba ocupado.",
  "missing.POOL_FULL": "todos los traductores estaban ocupados.",
  "missing.PREFERRED_NODE_NOT_CAPABLE": "el traductor elegido no conoce estos idiomas.",
  "missing.SCHEDULER_DEPENDENCY_DOWN": "el servicio no estaba disponible.",
  "missing.JOB_TIMEOUT": "la traducción tardó demasiado.",
  "missing.DEADLINE_EXCEEDED": "la traducción tardó demasiado.",
  "missing.JOB_CANCELLED": "se canceló.",
  "missing.JOB_FAILED": "la traducción falló.",
  "missing.QUOTA_EXCEEDED": "se dijo demasiado a la vez para esta cuenta.",
  "missing.BAD_AUDIO": "la grabación estaba dañada.",
  "missing.HELD_AUDIO_LOST": "se perdió el comienzo de la frase.",
  "missing.INTERNAL": "hubo un error interno del servicio.",
  "missing.SESSION_LOST": "se perdió la conexión antes de que llegara la traducción.",
  "missing.NOT_SENT": "no se pudo enviar.",
  "missing.OTHER": "algo salió mal ({reason}).",

  "problem.NO_SECURE_CONTEXT":
    "Los navegadores solo permiten el micrófono en páginas seguras. Abra esta página con https, o en este equipo como localhost.",
  "problem.NO_PERMISSION":
    "El micrófono está bloqueado. Permítalo para esta página en los ajustes del navegador (el símbolo junto a la dirección) y vuelva a intentarlo.",
  "problem.NO_DEVICE": "No se encontró ningún micrófono. Conecte uno y vuelva a intentarlo.",
  "problem.DEVICE_BUSY": "Otro programa está usando el micrófono. Ciérrelo y vuelva a intentarlo.",
  "problem.DEVICE_LOST": "El micrófono se desconectó o se apagó. Conéctelo y vuelva a intentarlo.",
  "problem.NOT_SUPPORTED":
    "Este navegador no puede grabar voz. Use una versión actual de Chrome, Edge, Firefox o Safari.",
  "problem.WORKLET_FAILED": "No se pudo cargar la grabadora. Vuelva a cargar la página.",
  "problem.NOT_READ":
    "La grabación se detuvo porque la página estuvo ocupada demasiado tiempo. Repítalo, por favor.",
  "problem.BLOCKED":
    "El navegador bloquea el sonido hasta que toque la pantalla. Vuelva a tocar el botón.",
  "problem.UNSUPPORTED_FORMAT":
    "La voz de esta traducción no se puede reproducir. Se muestra el texto.",
  "problem.UNREACHABLE": "No se puede llegar al servicio. Compruebe la red y vuelva a intentarlo.",
  "problem.SCHEDULER_DEPENDENCY_DOWN":
    "El servicio no está disponible en este momento. Inténtelo dentro de un minuto.",
  "problem.DRAINING": "El servicio se está reiniciando. Inténtelo dentro de un minuto.",
  "problem.BACKPRESSURE": "Hay demasiadas personas conectadas. Inténtelo dentro de un minuto.",
  "problem.QUOTA_EXCEEDED": "Se alcanzó el límite de esta cuenta. Inténtelo más tarde.",
  "problem.UNAUTHENTICATED": "Este servicio necesita una clave de acceso válida.",
  "problem.PERMISSION_DENIED":
    "Esta clave de acceso no sirve para conversaciones. Introduzca otra.",
  "problem.WRONG_ORIGIN":
    "Esta dirección no puede usar el servicio. Consulte a quien lo administra.",
  "problem.WRONG_HOST": "Esta dirección no puede usar el servicio. Consulte a quien lo administra.",
  "problem.INVALID_MESSAGE": "El servicio no aceptó la petición de esta página. Vuelva a cargarla.",
  "problem.SESSION_NOT_FOUND":
    "Estuvimos demasiado tiempo sin conexión y la conversación ha terminado. Empiece de nuevo.",
  "problem.SESSION_TAKEN_OVER":
    "La conversación sigue en otra ventana. Empiece de nuevo para hablar aquí.",
  "problem.BUFFER_FULL":
    "Llevamos demasiado tiempo sin conexión para conservar más palabras. Espere y repítalo.",
  "problem.ROOM_NOT_FOUND":
    "Esta sala no existe; puede que haya terminado. Pida un enlace nuevo a quien le invitó.",
  "problem.ROOM_CLOSED": "Esta sala se ha cerrado.",
  "problem.ROOM_FULL":
    "Esta sala está llena. Inténtelo más tarde, o elija un idioma que usen otros.",
  "problem.CLOSED": "La conversación ha terminado. Empiece de nuevo.",
  "problem.OTHER": "Algo salió mal ({reason}). Vuelva a intentarlo.",
};
