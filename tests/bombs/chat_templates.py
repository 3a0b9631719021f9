"""Templates of chats that make much of little, or take time without bound."""

BIG = "{% set a = 'a' * 9999999 %}"
TWICE = "{% macro m(n) %}{% if n < 40 %}{{ m(n + 1) }}{{ m(n + 1) }}{% endif %}"


def grow(first, step):
    """A value that a loop makes of its last one."""
    turns = "{% for i in range(99) %}{% set ns.x = " + step + " %}{% endfor %}"
    return "{% set ns = namespace(x=" + first + ") %}" + turns + "{{ ns.x }}"


TOO_MUCH = {
    "turns": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "repeated text": "{{ 'a' * 10**9 }}",
    "repeated list": "{{ ([1] * 10**8)|length }}",
    "added texts": grow("'ab'", "ns.x + ns.x"),
    "joined texts": grow("'ab'", "ns.x ~ ns.x"),
    "joined once": BIG + "{{ " + "~".join("a" * 3000) + " }}",
    "shared lists": grow("[1]", "[ns.x, ns.x]"),
    "shared objects": grow("{}", "dict(a=ns.x, b=ns.x)"),
    "shared and repeated": grow("[1]", "[ns.x] * 999"),
    "written": "{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}",
    "assigned": "{% set x %}{% for i in range(99999) %}" + "y" * 9999 + "{% endfor %}"
    "{% endset %}",
    "macros": TWICE + "{% endmacro %}{{ m(0) }}",
    "loops of loops": "{% for x in range(9999) recursive %}{{ loop(range(99999)) }}"
    "{% endfor %}",
    "formatted": "{{ ('%999d' * 9999) % ((1,) * 9999) * 99 }}",
    "indented": "{{ ('a\\n' * 9999)|indent(10**9) * 99 }}",
    "JSON": "{{ ([1] * 9999)|tojson(indent=10**9) }}",
    "JSON's separators": "{{ ([1] * 9999)|tojson(separators=('b' * 99999, '')) }}",
    "replaced": "{{ ('a' * 99999)|replace('a', 'b' * 99999) }}",
    "replaced nothing": "{{ ('a' * 99999)|replace('', 'b' * 99999) }}",
    "replaced by a method": "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
    "joined by a filter": "{{ range(9999)|join('b' * 99999) }}",
    "joined by a method": "{{ ('b' * 99999).join(['a'] * 9999) }}",
    "mapped": "{{ range(9999)|map('replace', '1', 'b' * 99999)|list|length }}",
    "defaults": "{{ ([x] * 9999)|map('default', 'b' * 99999)|join }}",
    "cut": "{{ ('a ' * 999999).split()|length * ('a ' * 999999).split()|length }}",
    "characters": BIG + "{{ a|list|length }}",
    "sorted": "{{ (['a' * 99999] * 9999)|sort|length }}",
    "compared": BIG + "{% for i in range(99999) %}{% if a == a ~ '' %}{% endif %}"
    "{% endfor %}",
}


def _file(folder, text):
    path = folder / "chat_template.jinja"
    path.write_text(text)
    return path


BOMBS = {
    name: lambda folder, text=text: _file(folder, text)
    for name, text in TOO_MUCH.items()
}
