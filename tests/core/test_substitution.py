"""What stands for what while a copy of a module runs."""

import pytest

from exburn.core import substitution
from exburn.core.substitution import Substitution, stand_in, substituting


class Part:
    pass


A, B, C, COPY, DEEPER, OTHER = (Part() for _ in range(6))


def test_originals_are_replaced_in_the_block_alone():
    assert stand_in(A) is A
    with substituting(Substitution([(A, COPY)])):
        assert stand_in(A) is COPY
        assert stand_in(COPY) is COPY  # the copy's own
        assert stand_in(B) is B
        with substituting(None):
            assert stand_in(A) is A
    assert stand_in(A) is A and substitution.current() is None


def test_a_program_within_a_program_goes_through_both():
    with substituting(Substitution([(A, COPY)])):
        with substituting(Substitution([(COPY, DEEPER)])) as inner:
            assert stand_in(A) is DEEPER
            assert inner.find(B) is None


def test_parts_that_are_met_and_those_that_are_reached_are_told():
    noted = []
    scope = Substitution([(A, COPY)], meet=lambda part: OTHER, note=noted.append)
    assert scope.stand_in(C) is OTHER and noted == []
    assert scope.stand_in(A) is COPY and noted == [A]
    scope.include(Substitution([(C, B)]))
    assert scope.stand_in(C) is B
    with pytest.raises(LookupError):
        Substitution(meet={}.__getitem__).stand_in(C)


def test_moments_grow_past_those_of_another_process():
    one = substitution.moment()
    assert substitution.moment() > one
    later = substitution.moment(one + 1000)
    assert later == one + 1001 and substitution.moment() > later


def test_a_clone_is_made_in_a_scope_of_its_own():
    assert substitution.clone_scope() is None
    before = substitution.moment()
    with substitution.making_clone():
        scope = substitution.clone_scope()
        assert scope.copies == {} and scope.began_at > before
    assert substitution.clone_scope() is None
