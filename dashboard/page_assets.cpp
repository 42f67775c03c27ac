#include "dashboard/page_assets.h"

namespace tandem::dashboard {

// The palette begins with Okabe and Ito's, which people with any kind of colour vision can tell apart.
const std::string_view kPageStyle = R"css(
:root{--ink:#1d2125;--soft:#667079;--line:#dfe3e6;--paper:#fff;--card:#f6f7f8;--mark:#e3f0fb;--good:#0a7d57;--bad:#b3401a;
--k0:#0072b2;--k1:#d55e00;--k2:#009e73;--k3:#cc79a7;--k4:#e69f00;--k5:#56b4e9;--k6:#7a6f00;--k7:#444a50;--k8:#8a3ffc;--k9:#a2191f}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7ea;--soft:#98a2ab;--line:#343a40;--paper:#15181b;--card:#1d2125;--mark:#173247;
--good:#4cc49b;--bad:#f0906a;--k0:#56a8dd;--k1:#f08a4b;--k2:#3dbf98;--k3:#dd9cc1;--k4:#f0b93c;--k5:#8fd0f5;--k6:#cfc24a;--k7:#b4bac0;--k8:#b58bff;--k9:#ff8389}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:64rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;font-weight:650;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;font-weight:650;margin:2.8rem 0 .6rem;padding-top:1rem;border-top:1px solid var(--line)}
h3{font-size:1rem;font-weight:600;margin:1.4rem 0 .3rem}
p{margin:.3rem 0 .8rem;max-width:44rem}
.soft,.none,figcaption,.readout{color:var(--soft)}
.live{color:var(--good);font-weight:600}
.headline{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:1.5rem;margin:1.6rem 0}
.result{background:var(--card);border-radius:.6rem;padding:1rem 1.2rem}
.result .big{font-size:2.1rem;font-weight:650;line-height:1.2;font-variant-numeric:tabular-nums}
.result .big small{font-size:1.2rem;font-weight:400;color:var(--soft)}
.gain{font-weight:600}.up{color:var(--good)}.down{color:var(--bad)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1.2rem 2rem}
figure{margin:0;min-width:0}figcaption{font-size:.9rem;margin-bottom:.2rem}
svg{width:100%;height:auto;display:block;font:12px system-ui,"DejaVu Sans",sans-serif;overflow:visible}
svg text{fill:var(--soft)}svg .end{text-anchor:end}svg .mid{text-anchor:middle}svg .name,svg .value{fill:var(--ink)}
.grid{stroke:var(--line);stroke-width:1}
line.level{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3}text.level{font-size:10.5px}
.curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.faint{opacity:.3;stroke-width:1}
.whisker{stroke:currentColor;stroke-width:3;stroke-linecap:round;opacity:.5}.dot{fill:currentColor}
.cursor{stroke:var(--soft);stroke-width:1}
.k0{color:var(--k0)}.k1{color:var(--k1)}.k2{color:var(--k2)}.k3{color:var(--k3)}.k4{color:var(--k4)}.k5{color:var(--k5)}.k6{color:var(--k6)}.k7{color:var(--k7)}.k8{color:var(--k8)}.k9{color:var(--k9)}
.rest-idle{color:var(--line)}.rest-other{color:var(--soft);opacity:.45}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem .9rem;margin:.3rem 0 0;padding:0;font-size:.82rem}
.legend i{display:inline-block;width:1rem;height:3px;background:currentColor;border-radius:2px;margin-right:.35rem;vertical-align:middle}
.legend i.block{height:.7rem;width:.7rem}
.readout{font-size:.82rem;margin:.15rem 0 0;min-height:1.3em;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;width:100%}
th,td{text-align:right;padding:.3rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}th{font-weight:600;color:var(--soft)}
td small{color:var(--soft);margin-left:.35rem}
td.text{text-align:left;white-space:normal;overflow-wrap:anywhere}
.bar{display:grid;grid-template-columns:7.5rem 1fr 4.5rem;gap:.6rem;align-items:center;margin:.3rem 0;font-size:.9rem}
.bar .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.track{display:flex;height:1.1rem;border-radius:.2rem;overflow:hidden}.track i{background:currentColor;height:100%}
.bar .value{text-align:right;font-variant-numeric:tabular-nums}
details{border:1px solid var(--line);border-radius:.5rem;margin:.5rem 0;background:var(--paper)}
summary{cursor:pointer;padding:.5rem .8rem;font-size:.95rem}
details>div{padding:0 .8rem .8rem}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:1rem}
.pair>*{min-width:0}
pre{font:12.5px/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,monospace;white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);
border-radius:.4rem;padding:.6rem .7rem;margin:.3rem 0;max-height:26rem;overflow:auto;unicode-bidi:plaintext}
pre mark{background:var(--mark);color:inherit;border-radius:2px;box-decoration-break:clone;-webkit-box-decoration-break:clone}
code{font:.88em ui-monospace,"DejaVu Sans Mono",Menlo,monospace}
.reward{font-weight:600;font-variant-numeric:tabular-nums}
@media(max-width:30rem){main{padding:1rem .8rem 3rem}.bar{grid-template-columns:5rem 1fr 4rem}.result .big{font-size:1.7rem}}
@media print{details{break-inside:avoid}pre{max-height:none}}
)css";

const std::string_view kPageScript = R"js(
"use strict";
const say=(v,percent)=>percent?(v*100).toFixed(1)+" %":Number(v.toPrecision(4)).toString();
function wire(){
  for(const svg of document.querySelectorAll("svg[data-chart]")){
    const c=JSON.parse(svg.dataset.chart),readout=svg.parentNode.querySelector(".readout");let cursor=null;
    const clear=()=>{if(cursor){cursor.remove();cursor=null}readout.textContent="\u00a0"};
    svg.addEventListener("pointerleave",clear);
    svg.addEventListener("pointermove",e=>{
      const box=svg.getBoundingClientRect(),at=(e.clientX-box.left)/box.width*svg.viewBox.baseVal.width;
      const x=c.x[0]+(Math.min(Math.max(at,c.left),c.right)-c.left)/(c.right-c.left)*(c.x[1]-c.x[0]);
      let near=null;const parts=[];
      for(const s of c.series){let best=null;for(const p of s.points)if(!best||Math.abs(p[0]-x)<Math.abs(best[0]-x))best=p;
        if(best){if(near===null||Math.abs(best[0]-x)<Math.abs(near-x))near=best[0];parts.push([s.name,best])}}
      if(near===null)return clear();
      if(!cursor){cursor=document.createElementNS("http://www.w3.org/2000/svg","line");cursor.setAttribute("class","cursor");
        cursor.setAttribute("y1",8);cursor.setAttribute("y2",svg.viewBox.baseVal.height-24);svg.appendChild(cursor)}
      const px=c.left+(near-c.x[0])/(c.x[1]-c.x[0])*(c.right-c.left);cursor.setAttribute("x1",px);cursor.setAttribute("x2",px);
      readout.textContent="step "+Math.round(near)+": "+parts.map(([n,p])=>(parts.length>1?n+" ":"")+say(p[1],c.percent)).join(", ");
    });
  }
}
wire();
if(document.documentElement.hasAttribute("data-live")){
  const timer=setInterval(async()=>{
    try{
      const answer=await fetch("/",{cache:"no-store"});if(!answer.ok)return;
      const fresh=new DOMParser().parseFromString(await answer.text(),"text/html"),main=fresh.querySelector("main");
      const open=new Set([...document.querySelectorAll("details[open]")].map(d=>d.id));
      for(const d of main.querySelectorAll("details"))d.open=open.has(d.id);
      document.querySelector("main").replaceWith(document.adoptNode(main));wire();
      if(!fresh.documentElement.hasAttribute("data-live"))clearInterval(timer);
    }catch{}
  },3000);
}
)js";

}  // namespace tandem::dashboard
