"""How a Perl project is asked for what only its build can say: it writes lines `Requires: PHASE MODULE VERSIONS`.

In a guest without a network, in a checkout. Makefile.PL or Build.PL runs and writes MYMETA.json, or MYMETA.yml. Without
them, the modules that files in lib and t use are listed, as [AutoPrereqs] of Dist::Zilla does.
"""

from __future__ import annotations

from sandbox.dependencies.collection import Collection, ReadFile
from sandbox.dependencies.layer_plan import ProjectDescription, Step
from sandbox.dependencies.perl_manifest import DESCRIBED, says_what_it_needs

_PROGRAM = r"""
use strict;
use warnings;

use CPAN::Meta;
use File::Find ();
use Module::Metadata;

my $answer = shift;
my @found;
if    ( -f 'Makefile.PL' ) { ask('Makefile.PL') }
elsif ( -f 'Build.PL' )    { ask('Build.PL') }
else                       { look_at_files() }
open my $out, '>', $answer or die "$answer: $!\n";
print {$out} map { "Requires: $_\n" } @found;
close $out or die "$answer: $!\n";

sub ask {
    my $script = shift;
    system( $^X, $script ) == 0 or die "$script ends with an error\n";
    my ($file) = grep { -f } qw(MYMETA.json MYMETA.yml) or die "$script wrote no MYMETA.json\n";
    my $prereqs = CPAN::Meta->load_file( $file, { lazy_validation => 1 } )->effective_prereqs;
    for my $phase (qw(configure build runtime test)) {
        my $wanted = $prereqs->requirements_for( $phase, 'requires' )->as_string_hash;
        push @found, map { "$phase $_ $wanted->{$_}" } sort keys %$wanted;
    }
}

sub look_at_files {
    my ( %used, %own );
    for my $folder ( grep { -d } qw(lib t) ) {
        File::Find::find( { no_chdir => 1, wanted => sub {
            return unless -f && /\.(?:pm|t|pl)\z/;
            my $info = Module::Metadata->new_from_file($_) or return;
            $own{$_} = 1 for $info->packages_inside;
            my $phase = $folder eq 'lib' ? 'runtime' : 'test';
            $used{"$phase $_"} = 1 for modules_of($_);
        } }, $folder );
    }
    push @found, map { "$_ 0" } grep { !$own{ ( split ' ' )[1] } } sort keys %used;
}

sub modules_of {
    my $file = shift;
    open my $in, '<', $file or return;
    my @modules;
    while ( my $line = <$in> ) {
        last if $line =~ /\A__(?:END|DATA)__/;
        next unless $line =~ /\A\s*(?:use|require)\s+([A-Z]\w*(?:::\w+)*)\s*([^#]*)/;
        push @modules, $1;
        push @modules, "$2" =~ /([A-Z]\w*(?:::\w+)*)/g if $1 eq 'base' || $1 eq 'parent';
    }
    return @modules;
}
"""

_ENV = {"PERL_MM_USE_DEFAULT": "1", "PERL_USE_UNSAFE_INC": "1", "NONINTERACTIVE_TESTING": "1"}


def needs_description(read: ReadFile) -> bool:
    """Whether no file that is data says what the project needs."""
    return not says_what_it_needs(Collection(read))


DESCRIPTION = ProjectDescription(
    Step(
        f"cat >/tmp/describe.pl <<'SPACE_END'{_PROGRAM}SPACE_END\nexec perl /tmp/describe.pl /report/{DESCRIBED}\n",
        _ENV,
        120.0,
    ),
    DESCRIBED,
    ("Requires",),
    needs_description,
)
