// A new job: a form, and what came of it.

import { alertUser, h, say } from './dom.js';
import { ask, refresh } from './data.js';

const FIELDS = [
  ['tasks', 'Tasks', 'number', '1'],
  ['time', 'Time limit', 'text', '30m'],
  ['memory', 'Memory of each task', 'text', '4G'],
  ['name', 'Name', 'text', ''],
  ['class', 'Class', 'text', ''],
  ['after', 'After jobs', 'text', '7 or 7:any'],
  ['directory', 'Directory', 'text', 'where tutti web was started'],
  ['output', 'Output file', 'text', 'tutti-%j.out'],
];

// What was typed stays until it is submitted, also while another view is looked at.
const typed = new Map();

export function view(main) {
  const kind = h('select', { id: 'kind', 'aria-describedby': 'kind-help' },
    h('option', { value: 'line' }, 'a line of a shell, once'),
    h('option', { value: 'each' }, 'a program, for each task'),
    h('option', { value: 'script' }, 'a batch script, once'));
  const text = h('textarea', { id: 'work', rows: '6', spellcheck: 'false', required: true, placeholder: './prepare && ./solve' });
  const help = h('p', { class: 'quiet', id: 'kind-help' });
  const fields = FIELDS.map(([name, title, type, hint]) => [name, title,
    h('input', { id: `field-${name}`, type, placeholder: hint, min: type === 'number' ? '1' : null, autocomplete: 'off' })]);
  const button = h('button', { class: 'main', type: 'submit' }, 'Submit');
  const form = h('form', { class: 'submit' },
    h('label', { for: 'kind' }, 'What runs'), kind, help,
    h('label', { for: 'work' }, 'Command'), text,
    h('div', { class: 'fields' }, fields.map(([name, title, input]) => h('div', null, h('label', { for: `field-${name}` }, title), input))),
    h('div', { class: 'actions' }, button));
  main.replaceChildren(h('section', { class: 'card', 'aria-labelledby': 'title' }, h('h1', { id: 'title' }, 'New job'), form));
  const inputs = [kind, text, ...fields.map(([, , input]) => input)];
  for (const input of inputs) if (typed.has(input.id)) input.value = typed.get(input.id);

  function explain() {
    help.textContent = {
      line: 'The line has a shell. It runs once, with processors for all tasks.',
      each: 'A word for each line: the program, then its arguments. It is started once for each task.',
      script: 'The script runs once. Its #TUTTI and #SBATCH lines may have options.',
    }[kind.value];
  }

  function job() {
    const asked = {};
    if (kind.value === 'each') asked.command = text.value.split('\n').filter((word) => word !== '');
    else asked[kind.value] = text.value;
    for (const [name, , input] of fields) {
      const value = input.value.trim();
      if (value !== '') asked[name] = name === 'tasks' ? Number(value) : value;
    }
    return asked;
  }

  form.addEventListener('input', () => { for (const input of inputs) typed.set(input.id, input.value); explain(); });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const response = await ask('v1/jobs', {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(job()) });
      const { job: number } = await response.json();
      typed.delete('work');
      alertUser('');
      say(`Job ${number} is submitted`);
      refresh();
      location.hash = `#/job/${number}`;
    } catch (error) {
      alertUser(error.message);
      button.disabled = false;
    }
  });
  explain();
  text.focus();
  return () => {};
}
