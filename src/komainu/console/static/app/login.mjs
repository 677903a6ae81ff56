// Signing in: the form is plain HTML, this sends it as the API wants it.
const form = /** @type {HTMLFormElement} */ (document.getElementById('login'));
const said = /** @type {HTMLElement} */ (document.getElementById('login-said'));
const button = /** @type {HTMLButtonElement} */ (form.querySelector('button'));

/** Where to go afterwards: a path of this site only, so that a link cannot lead a person elsewhere. */
function next() {
  const wanted = new URLSearchParams(location.search).get('next') ?? '/';
  const url = new URL(wanted, location.origin);
  return url.origin === location.origin ? url.pathname + url.search : '/';
}

/** @param {string} text */
function say(text) {
  said.textContent = text;
  said.hidden = text === '';
}

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  button.disabled = true;
  say('');
  try {
    const answer = await fetch('/api/v1/login', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ user: fields.get('user'), password: fields.get('password') }),
    });
    if (answer.ok) {
      location.assign(next());
      return;
    }
    const error = await answer.json().catch(() => null);
    say(error?.error?.message ?? `The server answered ${answer.status}.`);
  } catch {
    say('The server does not answer. Is it running?');
  }
  button.disabled = false;
});
