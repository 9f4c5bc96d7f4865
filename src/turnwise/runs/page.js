for (const figure of document.querySelectorAll('figure')) {
  const svg = figure.querySelector('svg'), out = figure.querySelector('output'), cursor = figure.querySelector('.cursor');
  const dots = [...svg.querySelectorAll('circle')];
  const at = dot => dot.cx.baseVal.value;
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const near = dots.reduce((a, b) => Math.abs(at(b) - x) < Math.abs(at(a) - x) ? b : a, dots[0]);
    if (!near) return;
    const said = dots.filter(dot => dot.dataset.step === near.dataset.step).map(dot => dot.dataset.say);
    out.textContent = `step ${near.dataset.step}: ${said.join(' · ')}`;
    cursor.setAttribute('d', `M${at(near)} 10V196`);
  });
  svg.addEventListener('pointerleave', () => { out.textContent = ''; cursor.setAttribute('d', ''); });
}
