"""A few common chat formats by name, for models whose file brings no template.

Which format a model was trained on is for its user to know: nothing here is ever chosen silently.
"""

from __future__ import annotations

CHATML = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""

LLAMA3 = """\
{{- bos_token -}}
{%- for message in messages -%}
<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content | trim }}<|eot_id|>
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start_header_id|>assistant<|end_header_id|>

{% endif -%}
"""

# Gemma has no role for a system message: its makers put the text in front of the first user turn.
GEMMA = """\
{{- bos_token -}}
{%- set first = namespace(text="") -%}
{%- for message in messages -%}
{%- if message.role == "system" -%}
{%- set first.text = message.content | trim ~ "\n\n" -%}
{%- else -%}
<start_of_turn>{{ "model" if message.role == "assistant" else message.role }}
{{ first.text }}{{ message.content | trim }}<end_of_turn>
{% set first.text = "" -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<start_of_turn>model
{% endif -%}
"""

MISTRAL = """\
{{- bos_token -}}
{%- set first = namespace(text="") -%}
{%- for message in messages -%}
{%- if message.role == "system" -%}
{%- set first.text = message.content | trim ~ "\n\n" -%}
{%- elif message.role == "user" -%}
[INST] {{ first.text }}{{ message.content | trim }} [/INST]
{%- set first.text = "" -%}
{%- else -%}
{{ " " ~ message.content | trim }}{{ eos_token }}
{%- endif -%}
{%- endfor -%}
"""

ZEPHYR = """\
{%- for message in messages -%}
<|{{ message.role }}|>
{{ message.content }}{{ eos_token }}
{% endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>
{% endif -%}
"""

# For models that never saw a conversation: two speakers in plain words.
PLAIN = """\
{%- for message in messages -%}
{%- if message.role == "system" -%}
{{ message.content | trim }}

{% else -%}
{{ "User" if message.role == "user" else "Assistant" }}: {{ message.content | trim }}
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}Assistant:{% endif -%}
"""

FORMATS = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "zephyr": ZEPHYR,
    "plain": PLAIN,
}
