// What one person likes, kept in this browser only: theme and clock. Everything else is in the address.
import { useEffect, useState } from 'preact/hooks';

/** @param {string} key @param {string} otherwise @returns {string} */
function kept(key, otherwise) {
  try {
    return localStorage.getItem(`komainu.${key}`) ?? otherwise;
  } catch {
    return otherwise; // storage is switched off: the default will do
  }
}

/** @param {string} key @param {string} otherwise @returns {[string, (value: string) => void]} */
export function usePreference(key, otherwise) {
  const [value, setValue] = useState(() => kept(key, otherwise));
  return [value, (next) => {
    setValue(next);
    try {
      localStorage.setItem(`komainu.${key}`, next);
    } catch {
      // storage is switched off: it holds until the page is left
    }
  }];
}

/** @param {string} wanted `dark`, `light` or `auto` @returns {'dark'|'light'} */
export function useTheme(wanted) {
  const [system, setSystem] = useState(() => matchMedia('(prefers-color-scheme: light)').matches);
  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: light)');
    const changed = () => setSystem(query.matches);
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, []);
  const theme = wanted === 'light' || (wanted !== 'dark' && system) ? 'light' : 'dark';
  useEffect(() => { document.documentElement.dataset.theme = theme; }, [theme]);
  return theme;
}
