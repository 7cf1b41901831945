// Logging in, where the server asks for a token. The link it prints brings one behind the #, which
// stays in the browser; a cookie that no script can read takes its place.

import { ASKED, logIn, readLogin } from "../api.js";
import { make, setText } from "../dom.js";

const LINK = "#token=";

/** Call `begin` once somebody may see the page; ask for a token now, or whenever the API does. */
export async function whenAdmitted(begin) {
  const asking = loginDialog(() => location.reload());
  const fault = await useLink();
  const login = await readLogin().catch(() => ({ needs_token: false })); // the views say what is wrong
  if (login.needs_token && !login.role) asking.open(fault);
  else begin();
  addEventListener(ASKED, () => asking.open("")); // the token was changed, or the cookie forgotten
}

/** Take the token out of the address, wherever it leads, and log in; return what went wrong. */
async function useLink() {
  if (!location.hash.startsWith(LINK)) return "";
  const token = decodeURIComponent(location.hash.slice(LINK.length));
  history.replaceState(null, "", location.pathname);
  try {
    await logIn(token);
    return "";
  } catch (error) {
    return error.message;
  }
}

function loginDialog(done) {
  const field = make("input", {
    id: "login-token",
    type: "password",
    autocomplete: "current-password",
    required: true,
    spellcheck: false,
  });
  const fault = make("p", { className: "fault", role: "alert" });
  const form = make(
    "form",
    { className: "login-form" },
    make("h1", { id: "login-title", textContent: "Log in" }),
    make("label", { htmlFor: field.id, textContent: "Token" }),
    field,
    fault,
    make("button", { className: "button is-main", textContent: "Log in" }),
    make("p", {
      className: "soft",
      textContent:
        "It is what the server was started with. With --token auto it stands in the first lines " +
        "it prints, as a link.",
    }),
  );
  const dialog = make("dialog", { className: "login", "aria-labelledby": "login-title" }, form);
  dialog.addEventListener("cancel", (event) => event.preventDefault()); // there is nothing behind it
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    setText(fault, "");
    try {
      await logIn(field.value);
      done();
    } catch (error) {
      setText(fault, error.message);
      field.select();
    }
  });
  return {
    open(why) {
      if (dialog.open) return;
      setText(fault, why);
      document.body.append(dialog);
      dialog.showModal();
    },
  };
}
