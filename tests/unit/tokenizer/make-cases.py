#!/usr/bin/env python3
"""Write pretokenize-cases.json and template-cases.json: what Hugging Face's libraries make of them.

Needs the Python packages tokenizers and transformers (no torch).  Run by hand, not part of CI.
usage: make-cases.py FOLDER"""
import json
import sys

from tokenizers import Regex, pre_tokenizers
from transformers.utils.chat_template_utils import _compile_jinja_template

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2_SHORT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
POSSESSIVE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|"
              r"\s++$|\s*[\r\n]|\s+(?!\S)|\s")
WELL_KNOWN = [GPT2, GPT2_SHORT, LLAMA3, QWEN2, O200K, POSSESSIVE, r"[\r\n]", r"\s?\p{L}+", r"\s+$", r"\p{N}+",
              r"[0-9][0-9][0-9]", r"[\p{P}\$\+<=>\^~\|]+", r"\w+|[^\w\s]+", r"\d{1,3}(?=(?:\d{3})*)"]
SYNTAX = [r"a{1,3}+", r"a{2}?", r"a{1,2}?", r"a{,2}", r"(?:ab){2}+", r"(a|b){2}+c?", r"[ab]{2}+", r"\p{L}{2}+", r"é{2}+",
          r"^a", r"a$", r"a.b", r"(?m:a.b)", r"(?i:AB)", r"(?i)ab", r"\v", r"\u0041", r"\x{41}", r"a*", r"b?",
          r"\p{^L}", r"\P{L}", r"(?>a+)b", r"(?<=a)b", r"(?<!a)b", r"[]a]", r"[^]a]", r"a{", r"a{1", r"\Aa", r"b\z",
          r"\p{Han}+", r"\p{Hiragana}+|\p{Katakana}+", r"[^\p{Han}a]+", r"\w", r"[\w-]+", r"\W", r"[^\w]+", r"\S+",
          r"[\s\S]", r"[\S]+", r"\D+", r"[\D]", r"", r"x|"]
BEHAVIORS = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
TEXTS = ["", " ", "a", "Hello World", "  it's  they'LL 'S 'ſ x'd  ", "x1y22z333 4444 55555 666666 7777777",
         "tabs\t\tand\nnew\n\n\nlines\r\nand  \n  blanks   ", "naïve Ünïcödé ß ǅ ʰ e\u0301\u0301 ﬁ",
         "漢字かなカナー々〆 한국어 ไทย עברית हिन्दी", "½ ² Ⅷ ٣٤٥ ४ 〇 ①", "😀👨‍👩‍👧‍👦 ~!@#$%^&*()_+-=[]{}|;':\",./<>?",
         "a\u180eb \u00a0\u2003\u3000 \u0085 \u2028x \u200b\ufeff_‿", "aaab aab ab b ba aaaa abababc éééé AB ab aB ]x]",
         "a\nb\na b\n", "camelCaseWORDS iPhone McDonald HTTPServer's X", "\x00\x01\x1c\x1f\x7f", "-a--b---c-", "---", "-"]


def pieces(steps, text):
    parts = []
    for step in steps:
        pattern = step["pattern"] if step["literal"] else Regex(step["pattern"])
        parts.append(pre_tokenizers.Split(pattern, step["behavior"], step["invert"]))
    return [text[begin:end] for _, (begin, end) in pre_tokenizers.Sequence(parts).pre_tokenize_str(text)]


def step(pattern, literal=False, behavior="isolated", invert=False):
    return {"pattern": pattern, "literal": literal, "behavior": behavior, "invert": invert}


def pretokenize_cases():
    lists = [[step(p)] for p in WELL_KNOWN + SYNTAX]
    lists += [[step(p, literal, behavior, invert)] for behavior in BEHAVIORS for invert in (False, True)
              for p, literal in [("-", True), (r"\s+", False), (r"a|aa", False), (r"\p{N}", False), ("b", True)]]
    lists += [[step(r"\p{N}"), step(GPT2)], [step(r"\p{N}", behavior="contiguous"), step(GPT2)],
              [step(r"\p{N}{1,3}"), step(r"[一-龥]+"), step(GPT2)],
              [step(r"[\p{P}\$\+<=>\^~\|]+"), step(GPT2), step(r"\p{N}+"), step("[0-9][0-9][0-9]")]]
    return [{"steps": steps, "texts": [[text, pieces(steps, text)] for text in TEXTS]} for steps in lists]


def conversation(*contents, system=None):
    messages = [{"role": "system", "content": system}] if system is not None else []
    return messages + [{"role": "assistant" if i % 2 else "user", "content": c} for i, c in enumerate(contents)]


CONVERSATIONS = [
    conversation("Hi"), conversation("Hi", system="Be brief."), conversation(" Äh\n\n", "Yes. ", "\tAnd?\x1c"),
    conversation("a", "<think>\nbecause\n</think>\n\nb", "c", system=" s "),
    conversation("a", "<think>so</think>b"), conversation("", "", "", system=""),
    [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": "no"}],
    [{"role": "user", "content": "x"}, {"role": "tool", "content": "42"}, {"role": "tool", "content": "43"}],
    [{"role": "system", "content": "one"}, {"role": "system", "content": "two"}, {"role": "user", "content": "<b>&\"'"}],
    [],
]

PLAIN = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TOOLS = """{%- set opening = messages | first %}
{%- if tools %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) + "\\n" }}
        {%- for key, value in tool.items() if key != "return" %}{{ key ~ value }}{%- endfor %}
    {%- endfor %}
{%- elif messages and opening.role == 'system' %}
    {{- '<|im_start|>system\\n' + opening.content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a test.<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == "tool" %}
        {{- '<|im_start|>user' if loop.index0 == 0 or messages[loop.index0 - 1].role != "tool" }}
        {{- '\\n<result>' ~ m.content ~ '</result>' }}
        {%- if loop.last or not (messages[loop.index].role == "tool") %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- elif not (loop.first and m.role == "system") and not m.tool_calls %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""
THINK = """{%- set state = namespace(open=true, last=messages | length - 1) %}
{%- for m in messages[::-1] if m.role == 'user' %}
    {%- if state.open and m.content is string and not (m.content.startswith('<r>') and m.content.endswith('</r>')) %}
        {%- set state.open = false %}
        {%- set state.last = (messages | length - 1) - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set said = m.content if m.content is string else '' %}
    {%- set thought = m.reasoning_content if m.reasoning_content is defined and m.reasoning_content is not none else '' %}
    {%- if not thought and '</think>' in said %}
        {%- set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' ~ m['role'] ~ '\\n' }}
    {%- if m.role == 'assistant' and loop.index0 > state.last and (loop.last or thought) %}
        {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- said + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' + ('<think></think>' if enable_thinking is defined and not enable_thinking else '') }}
{%- endif %}"""
DATED = """{{- bos_token }}
{%- if not day is defined %}
    {%- set day = "1 Jan 2024" %}
{%- endif %}

{#- What the system says has its own place. #}
{%- set told = "" %}
{%- if messages[0]['role'] == 'system' %}
    {%- set told = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- if helpers is defined or tools is not none %}
    {{- "Helpers: " + helpers | reject('equalto', 'x') | join(", ") }}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday: " + day + "\\n\\n" }}{{ told }}{{- "<|eot_id|>" }}
{%- for m in messages %}
    {%- if m.role == "tool" or 'tool_calls' in m %}
        {{- "<|start_header_id|>tool<|end_header_id|>\\n\\n" }}
        {%- if m.content is mapping %}{{- m.content | tojson }}{%- else %}{{- m.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
TURNS = """{%- set turns = messages[1:] if messages[0]["role"] == "system" else messages %}
{%- set asked = turns | selectattr("role", "equalto", "user") | list %}
{%- for m in turns | rejectattr("role", "equalto", "tool") | selectattr("tool_calls", "undefined") %}
    {%- if (m["role"] == "user") == (loop.index0 % 2 == 1) %}
        {{- raise_exception("out of turn: " + m["role"]) }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in turns %}
    {%- if m["role"] == "user" and m == asked[-1] and messages | length != turns | length %}
        {{- "[INST] " + messages[0]["content"] + "\\n\\n" + m["content"] + "[/INST]" }}
    {%- elif m["role"] == "user" %}
        {{- "[INST] " + m["content"] + "[/INST]" }}
    {%- elif m["role"] == "assistant" %}
        {{- " " + m["content"]|trim + eos_token }}
    {%- else %}
        {{- raise_exception("nobody knows " + m["role"]) }}
    {%- endif %}
{%- endfor %}
"""
SPACES = """
  {% for m in messages %}
    {{ m.role }}  {# a comment #}
    {%+ if m.content %}  [{{- m.content -}}  ]
    {% endif +%}
  {%- endfor %}

	{% set x = 'last' %}
{{ x }} {#- both -#}  end
"""
EXPRESSIONS = r"""{{ 1 + 2 * 3 - 4 // 3 % 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 'a' ~ 1 ~ none ~ true }} {{ not 1 == 2 }}
{{ 'ab' in 'cabd' }} {{ 'x' not in ['x', 'y'] }} {{ messages | length > 1 and messages[1].role }} {{ nope }} {{ (nope.x is defined) if false else 'no' }}
{{ messages[0].content[0:2] if messages else '' }} {{ 'äöü'[1] }} {{ 'äöü'[-2:] }} {{ [1, 2, 3][-1] }} {{ ['a', 'b'] | join('-') }}
{{ ' x ' | trim }}|{{ '--x-'.strip('-') }}|{{ 'a-b-c'.split('-')[1] }} {{ 'Hello' | upper }} {{ 'Hello wORLD' | title }} {{ 'hELLO'.capitalize() }}
{{ x | default('d') }} {{ '' | default('e', true) }} {{ 'aXbX' | replace('X', '--') }} {{ messages | first is defined }} {{ 3 is number }} {{ 'a' is string }}
{{ {'a': 1, 'b': 'c'}.b }} {{ {'a': 1}.get('z', 'none') }} {{ "quo\"te\t\x41\u00e4\\" 'joined' }} {{ (1 if 0 else 2) }} {{ 1 < 2 }} {{ 2 >= 3 }} {{ true and 'yes' or 'no' }}
{% for i in [1, 2, 3, 4] if i != 2 %}{{ loop.index }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }},{% else %}empty{% endfor %}
{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% if i == 3 %}{% break %}{% endif %}{% endfor %}
{% set v = 1 %}{% for i in [1] %}{% set v = 2 %}{{ v }}{% endfor %}{{ v }}{% if true %}{% set v = 3 %}{% endif %}{{ v }}
{% generation %}g{% endgeneration %}{{ messages[0]['role'] is in ['user', 'system'] if messages else '' }} {{ none is none }} {{ 'abc' | length }} {{ 'é' | length }}"""
TEMPLATES = [PLAIN, TOOLS, THINK, DATED, TURNS, SPACES, EXPRESSIONS,
             "{{ bos_token }}{{ eos_token }}{{ unknown }}\n\n", "{{ messages[0].role.x.y }}", "{{ messages + 1 }}",
             "{% for m in messages %}{{ m.content | trim }}\r\n{% endfor %}\r\n", "{{ 'a' < 1 }}", "plain", ""]


def template_cases():
    cases = []
    for template in TEMPLATES:
        for messages in CONVERSATIONS:
            case = {"template": template, "messages": messages}
            try:
                case["text"] = _compile_jinja_template(template).render(
                    messages=messages, tools=None, documents=None, add_generation_prompt=True, bos_token="<s>",
                    eos_token="</s>")
            except Exception as error:  # a refusal by the template, or by Jinja
                case["error"] = type(error).__name__
            cases.append(case)
    return cases


def write(path, cases):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")


if __name__ == "__main__":
    write(sys.argv[1] + "/pretokenize-cases.json", pretokenize_cases())
    write(sys.argv[1] + "/template-cases.json", template_cases())
