"""Templates of strangers end in typed errors, before they take time or memory."""

import pytest
from tests.bombs.chat_templates import TOO_MUCH, grow

from exburn.errors import DataError, FileFormatError
from exburn.text import ChatTemplate

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
NOT_ALLOWED = {
    "a range": ("{{ range(10**9) }}", "a range of 1,000,000,000"),
    "a macro in itself": (
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "50 times",
    ),
    "a loop in itself": (
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "50 times",
    ),
    "powers": ("{{ 10 ** (10 ** 8) }}", "digits"),
    "products": (grow("2", "ns.x * ns.x"), "digits"),
    "a number of digits": ("{{ '9' * 9999|int }}{{ ('9' * 9999)|int }}", "digits"),
    "rounding": ("{{ 1|round(-1000000000) }}", "'round'"),
    "slices": ("{{ [1]|slice(1000000000)|list }}", "'slice'"),
    "a width": ("{{ '%1000000000d' % 1 }}", "formats texts"),
    "a width beside": ("{{ '%*d' % (1000000000, 1) }}", "formats texts"),
    "format": ("{{ '{0.__class__}'.format(1) }}", "'format'"),
    "format_map": ("{{ '{a:>1000000000}'.format_map({'a': 1}) }}", "'format_map'"),
    "ljust": ("{{ 'a'.ljust(1000000000) }}", "'ljust'"),
    "center": ("{{ 'a'|center(1000000000) }}", "'center'"),
    "classes": ("{{ messages.__class__ }}", "'__class__'"),
    "classes of items": ("{{ messages['__class__'] }}", "'__class__'"),
    "classes by a filter": (
        "{{ [messages]|map(attribute='__class__')|list }}",
        "class",
    ),
    "attr": ("{{ ''|attr('__class__') }}", "'attr'"),
    "globals": ("{{ raise_exception.__globals__ }}", "'__globals__'"),
    "self": ("{{ self.__init__ }}", "'__init__'"),
    "a method as text": ("{{ messages[0].items }}", "builtin_function_or_method"),
    "a function as text": ("{{ range }}", "a type"),
    "a namespace as text": ("{% set n = namespace() %}{{ n }}", "a Namespace"),
    "a chat that changes": ("{{ messages.append(1) }}", "'append'"),
    "a message that changes": ("{{ messages[0].update({}) }}", "'update'"),
    "other files": ("{% include 'x' %}", "'include'"),
    "other files' macros": ("{% from 'x' import y %}", "'fromimport'"),
    "blocks": ("{% block a %}{% endblock %}", "'block'"),
    "depth": ("{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}", "recursion"),
    "length": ("x" * 70000, "70,000 characters"),
    "blocks in blocks": ("{% if 1 %}" * 99 + "{% endif %}" * 99, "compiled"),
    "a date": ("{{ strftime_now('%1000000000d') }}", "a date in a form"),
    "no template": ("{% for %}", "no template of Jinja"),
    "no tag": ("{% debug %}", "unknown tag 'debug'"),
}


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_what_makes_much_of_little_is_refused(kind):
    with pytest.raises(FileFormatError, match=r"too many steps|too much time|gives"):
        ChatTemplate(TOO_MUCH[kind]).render(CHAT)


@pytest.mark.parametrize("kind", NOT_ALLOWED)
def test_what_a_template_may_not_use_is_named(kind):
    text, reason = NOT_ALLOWED[kind]
    with pytest.raises(FileFormatError, match=reason):
        ChatTemplate(text).render(CHAT)


def test_time_ends_what_takes_few_steps(monkeypatch):
    monkeypatch.setattr("exburn.text.sandbox._SECONDS", -1.0)
    with pytest.raises(FileFormatError, match="too much time"):
        ChatTemplate("{{ messages[0].content }}").render(CHAT)


def test_a_template_that_fails_on_a_chat_tells_of_the_chat():
    with pytest.raises(DataError, match=r"fails on the chat.*'dict object' has no"):
        ChatTemplate("{{ messages[0].name.first }}").render(CHAT)
    with pytest.raises(DataError, match="refuses the chat: no"):
        ChatTemplate("{{ raise_exception('no') }}").render(CHAT)


def test_long_chats_have_more_steps():
    text = "{% for m in messages %}{{ m.content|trim|replace('h', 'H') }}{% endfor %}"
    chat = [{"role": "user", "content": " hi" * 100_000}] * 200
    assert len(ChatTemplate(text).render(chat)) > 50_000_000


def test_there_is_one_date():
    assert ChatTemplate("{{ strftime_now('%d %b %Y') }}").render(CHAT) == "26 Jul 2024"


def test_parts_of_the_assistant_are_found_and_not_within_macros():
    text = "{% for m in messages %}{{ m.role }}{% generation %}{{ m.content }}"
    text += "{% endgeneration %}{% endfor %}"
    assert ChatTemplate(text).spans(CHAT) == ("userhiassistantyo", [(4, 6), (15, 17)])
    text = "{% macro m(c) %}-{% generation %}{{ c }}{% endgeneration %}{% endmacro %}"
    with pytest.raises(FileFormatError, match="within a macro"):
        ChatTemplate(text + "{{ m('so') }}").render(CHAT)
