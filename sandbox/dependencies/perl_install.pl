# Build and install the distributions in archives/ into layer/, in the order in which they need each other.
#
# Runs in a guest without a network, for Makefile.PL, Build.PL and compilers run code of the distributions. Their own
# tests are not run. A distribution that cannot be built, or does not end in time, is left out, and named in
# left-out.txt; what it ran short of, by the words of its log, is a line `RESOURCE ARCHIVE` in short-of.txt.
# SPACE_SECONDS: for all of them together. SPACE_SECONDS_EACH: at most, for one.
use strict;
use warnings;

use CPAN::Meta;
use Cwd qw(getcwd);
use File::Find ();
use File::Path qw(make_path remove_tree);
use Module::Metadata;

my $TARGET = '/sandbox-layers/perl';    # where checks find it: programs may keep the path
my $END    = time + delete $ENV{SPACE_SECONDS};
my $LIMIT  = delete $ENV{SPACE_SECONDS_EACH};
my $LEAST  = 20;
my %SHORT  = (
    disk      => qr/No space left on device|Disk quota exceeded/,
    memory    => qr/Cannot allocate memory|out of memory|virtual memory exhausted/i,
    processes => qr/Resource temporarily unavailable|cannot fork|can't fork/i,
);
my $top    = getcwd();
my $root   = "$top/root";
my $lib    = "$root$TARGET/lib/perl5";
make_path( $lib, "$root$TARGET/bin", "$top/work" );

$ENV{PERL5LIB} = $lib;
$ENV{PATH}     = "$root$TARGET/bin:$ENV{PATH}";
$ENV{$_}       = 1 for qw(PERL_MM_USE_DEFAULT NONINTERACTIVE_TESTING PERL_USE_UNSAFE_INC);
delete @ENV{qw(PERL_MM_OPT PERL_MB_OPT MAKEFLAGS)};

my ( @names, %folders, %needs, %provider, %is_slow );
for my $archive ( glob 'archives/*' ) {
    my $name = substr $archive, 9;
    push @names, $name;
    $folders{$name} = unpack_archive( $archive, scalar @names ) or next;
    describe($name);
}

my ( @order, %seen );
sort_after_needs($_) for @names;

# META says what most need; who computes it is tried again after the others.
my @pending = @order;
while (@pending) {
    my @failed = grep { !install($_) } @pending;
    my $is_over = @failed == @pending;
    @pending = grep { !$is_slow{$_} } @failed;
    last if $is_over;
}

open my $out, '>', "$top/left-out.txt" or die "left-out.txt: $!\n";
print {$out} "$_\n" for sort @pending, keys %is_slow;
close $out or die "left-out.txt: $!\n";
clean();
rename "$root$TARGET", "$top/layer" or die "layer: $!\n";

sub unpack_archive {
    my ( $archive, $number ) = @_;
    my $kinds = `tar --force-local -tvf '$archive' 2>/dev/null | cut -c 1 | sort -u | tr -d '\\n'`;
    if ( $kinds !~ /\A-?d?\z/ || !length $kinds ) {
        print STDERR "$archive holds something else than files and folders\n";
        return;
    }
    my $folder = "$top/work/$number";
    make_path($folder);
    my @options = qw(--no-same-owner --no-same-permissions);
    my @tar = ( 'tar', '--force-local', '-xf', $archive, @options, '-C', $folder );
    if ( run_logged( 'sh', '-c', 'exec "$@" >one.log 2>&1', 'sh', @tar ) != 0 ) {
        note_failure( substr $archive, 9 );
        return;
    }
    my @inside = glob "$folder/*";
    return @inside == 1 && -d $inside[0] ? $inside[0] : $folder;
}

sub describe {
    my $name   = shift;
    my $folder = $folders{$name};
    my ($file) = grep { -f } map { "$folder/$_" } qw(META.json META.yml);
    my $meta   = $file ? eval { CPAN::Meta->load_file( $file, { lazy_validation => 1 } ) } : undef;
    my $provided = $meta ? eval { $meta->provides } : undef;
    if ( !%{ $provided || {} } && -d "$folder/lib" ) {
        $provided = eval { Module::Metadata->package_versions_from_directory("$folder/lib") };
    }
    $provider{$_} //= $name for keys %{ $provided || {} };
    for my $phase ( $meta ? qw(configure build runtime) : () ) {
        my $found = eval { $meta->effective_prereqs->requirements_for( $phase, 'requires' ) } or next;
        $needs{$name}{$_} = 1 for $found->required_modules;
    }
}

sub sort_after_needs {
    my $name = shift;
    return if $seen{$name}++;
    no warnings 'recursion';
    for my $module ( sort keys %{ $needs{$name} || {} } ) {
        sort_after_needs( $provider{$module} ) if $provider{$module};
    }
    push @order, $name;
}

sub install {
    my $name   = shift;
    my $folder = $folders{$name} or return 0;
    my @ways   = (
        [ 'Build.PL', "--install_base $TARGET", './Build', "./Build install --destdir '$root'" ],
        [   'Makefile.PL', "INSTALL_BASE=$TARGET INSTALLMAN1DIR=none INSTALLMAN3DIR=none",
            'make', "make install DESTDIR='$root'"
        ],
    );
    for my $way (@ways) {
        my ( $script, $options, @commands ) = @$way;
        next unless -f "$folder/$script";
        my $all = join ' && ', "perl $script $options", @commands;
        my $seconds = limit();
        my @shell   = ( 'sh', '-c', "cd \"\$1\" && ($all) >'$top/one.log' 2>&1 </dev/null", 'sh', $folder );
        my $status  = run_logged( 'timeout', '-s', 'KILL', $seconds, @shell );
        return 1 if $status == 0;
        note_failure($name);
        if ( $status == 9 || $status == 137 << 8 ) {    # timeout kills its group, and so itself
            print STDERR "$name was stopped after $seconds seconds\n";
            return !( $is_slow{$name} = 1 );
        }
    }
    return 0;
}

# A command writes one.log, or what refused to start it is there.
sub run_logged {
    unlink 'one.log';
    my $status = system @_;
    if ( $status == -1 ) {
        my $why = "$!";
        open my $log, '>', 'one.log' or die "one.log: $!\n";
        print {$log} "cannot start $_[0]: $why\n";
        close $log or die "one.log: $!\n";
    }
    return $status;
}

# Some that hang must not take the time of all others.
sub limit {
    my $half = int( ( $END - time ) / 2 );
    my $left = $half < $LEAST ? $LEAST : $half;
    return $left > $LIMIT ? $LIMIT : $left;
}

# The kernel counts no full disk, and no memory that was refused.
sub note_failure {
    my $name = shift;
    print STDERR "$name:\n", `tail -n 20 one.log`;
    my %found;
    if ( -f 'one.log' && open my $in, '<', 'one.log' ) {
        while ( my $line = <$in> ) {
            for ( keys %SHORT ) { $found{$_} = 1 if $line =~ $SHORT{$_} }
        }
    }
    return if !%found;
    open my $out, '>>', 'short-of.txt' or die "short-of.txt: $!\n";
    print {$out} map { "$_ $name\n" } sort keys %found;
    close $out or die "short-of.txt: $!\n";
}

# Pages for people, and files that say when and where something was built.
sub clean {
    remove_tree("$root$TARGET/man");
    my @files;
    File::Find::find(
        sub { push @files, $File::Find::name if $_ eq '.packlist' || $_ eq 'perllocal.pod' },
        "$root$TARGET"
    );
    unlink @files;
}
