# Fetch the distributions that modules.json asks for, and those that they need, from a mirror of CPAN.
#
# Runs in a guest whose way out leads to the mirror only. No code of a distribution runs: an archive is written as it is,
# and META.json or META.yml is read from it as data. CPAN::Meta::Requirements compares versions by Perl's own rules.
# modules.json: {"requires": [[MODULE, VERSIONS]], "locked": {MODULE: [VERSION, PATH]}}.
use strict;
use warnings;

use CPAN::Meta;
use CPAN::Meta::Requirements;
use Digest::SHA;
use HTTP::Tiny;
use IO::Uncompress::Gunzip;
use JSON::PP ();
use Module::Metadata;

my $MAX_DISTRIBUTIONS = 500;
my $MAX_MODULES       = 10_000;
my $INDEX_BYTES       = 64 << 20;
my $INDEX_TEXT_BYTES  = 512 << 20;
my $ARCHIVE_BYTES     = 256 << 20;
my $SMALL_BYTES       = 4 << 20;    # of CHECKSUMS, and of a META file
my $TRIES             = 3;

my $module_name = qr/(?=.{1,120}\z)[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z0-9_]+)*/a;
my $path_form   = qr{
    ([A-Z]) / ([A-Z][A-Z0-9-]) / ([A-Z][A-Z0-9-]{1,19}) /
    ((?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}/){0,3}) ([A-Za-z0-9][A-Za-z0-9._+-]{0,150}\.(?:tar\.gz|tgz|tar\.bz2|tbz))
}xa;

my $mirror = $ENV{SPACE_INDEX} =~ s{/+\z}{}r;
my $is_tls = $mirror =~ m{\Ahttps:}i;
die "This image's Perl has no IO::Socket::SSL, which a mirror with https needs\n"
    if $is_tls && !eval { require IO::Socket::SSL };
my $http = HTTP::Tiny->new(
    agent       => 'space-sandbox ',
    keep_alive  => $is_tls,    # in a tunnel; the proxy serves one plain request for each connection
    timeout     => 30,
    verify_SSL  => 1,
    SSL_options => { SSL_ca_file => $ENV{SSL_CERT_FILE} },
);

my $asked = JSON::PP->new->utf8->decode( read_file('modules.json') );
my %locked = %{ $asked->{locked} };
my ( %ranges, %pending, %paths, %checksums, %indexed, %in_image, @notes, @unverified );
mkdir 'archives' or die "archives: $!\n";

require_module(@$_) for @{ $asked->{requires} };
while (%pending) {
    my @modules = sort keys %pending;
    %pending = ();
    my @lacking = grep { !$locked{$_} && !is_in_image($_) } @modules;
    look_up(@lacking) if @lacking;
    for my $module ( ( grep { $locked{$_} } @modules ), @lacking ) {
        my $path = choose_path($module) or next;
        next if $paths{$path}++;
        die "More than $MAX_DISTRIBUTIONS distributions are asked for\n" if keys %paths > $MAX_DISTRIBUTIONS;
        require_module(@$_) for fetch_distribution($path);
    }
}
write_selection();

sub require_module {
    my ( $module, $versions ) = @_;
    return if $module eq 'perl' || $module !~ /\A$module_name\z/;
    return if grep { $_ eq $versions } @{ $ranges{$module} };
    push @{ $ranges{$module} }, $versions;
    $pending{$module} = 1;
    die "More than $MAX_MODULES modules are asked for\n" if keys %ranges > $MAX_MODULES;
}

sub accepts {
    my ( $module, $version ) = @_;
    for my $range ( @{ $ranges{$module} } ) {
        my $is_met = eval {
            CPAN::Meta::Requirements->from_string_hash( { $module => $range } )->accepts_module( $module, $version );
        };
        return 0 unless $is_met;
    }
    return 1;
}

# The image's modules are looked at by their text.
sub is_in_image {
    my $module = shift;
    my $found  = Module::Metadata->new_from_module($module) or return 0;
    return 0 unless accepts( $module, $found->version($module) // 0 );
    return $in_image{$module} = 1;
}

# Find modules in the index, which is read once for each level of what is needed.
sub look_up {
    my %wanted = map { $_ => 1 } grep { !exists $indexed{$_} } @_;
    return unless %wanted;
    fetch_index() unless -e 'index.txt';
    @indexed{ keys %wanted } = ();
    open my $lines, '<:raw', 'index.txt' or die "index.txt: $!\n";
    while ( my $line = <$lines> ) {
        my ( $module, $version, $path ) = split ' ', $line, 4;
        $indexed{$module} = [ $version, $path ] if defined $path && $wanted{$module};
    }
}

sub fetch_index {
    download( 'modules/02packages.details.txt.gz', 'index.gz', $INDEX_BYTES );
    my $packed = IO::Uncompress::Gunzip->new( 'index.gz', MultiStream => 1 ) or die "The index is no gzip file\n";
    open my $out, '>:raw', 'index.txt' or die "index.txt: $!\n";
    my ( $size, $block ) = (0);
    while ( my $length = $packed->read( $block, 1 << 20 ) ) {
        die "The index is damaged\n" if $length < 0;
        die "The index is too large\n" if ( $size += $length ) > $INDEX_TEXT_BYTES;
        print {$out} $block or die "index.txt: $!\n";
    }
    close $out or die "index.txt: $!\n";
}

sub choose_path {
    my $module = shift;
    return $locked{$module}[1] if $locked{$module};
    my $entry = $indexed{$module};
    if ( !$entry ) {
        return note("$module is not in the index");
    }
    my ( $version, $path ) = @$entry;
    return note("$module has no usable path in the index") unless is_path($path);
    return note("$module comes with a newer Perl only") if $path =~ m{/perl-?5};
    $version = 0 if $version eq 'undef';
    if ( !accepts( $module, $version ) ) {
        my $wanted = join ', ', @{ $ranges{$module} };
        return note("$module $version, the newest of the index, is not $wanted");
    }
    return $path;
}

sub is_path {
    my $path = shift;
    return $path =~ /\A$path_form\z/ && $2 eq substr( $3, 0, 2 ) && $1 eq substr( $3, 0, 1 );
}

# Returns the modules that a distribution needs to be built and used.
sub fetch_distribution {
    my $path = shift;
    die "No path of a distribution: $path\n" unless is_path($path);
    my $name = substr( $path, 5 ) =~ s{/}{%2F}gr;    # AUTHOR/FILE
    download( "authors/id/$path", "archives/$name", $ARCHIVE_BYTES );
    compare( $path, "archives/$name" );
    my $meta = read_meta("archives/$name") or do {
        note("$name has no META file that can be read, so what it needs is not known");
        return;
    };
    my %needed;
    for my $phase (qw(configure build runtime)) {
        my $found = eval { $meta->effective_prereqs->requirements_for( $phase, 'requires' )->as_string_hash } || {};
        $needed{"$_ $found->{$_}"} = [ $_, $found->{$_} ] for keys %$found;
    }
    return map { $needed{$_} } sort keys %needed;
}

sub compare {
    my ( $path, $file ) = @_;
    my ( $folder, $name ) = $path =~ m{\A(.*)/([^/]+)\z};
    my $known = $checksums{$folder} //= read_checksums($folder);
    my $sha256 = $known->{$name};
    if ( !$sha256 ) {
        die "$path has no sha256 in the CHECKSUMS of its folder: it is not used\n"
            unless grep { $_->[1] eq $path } values %locked;    # an old release
        push @unverified, $name;
        print STDERR "$name is not in CHECKSUMS\n";
        return;
    }
    my $seen = Digest::SHA->new(256)->addfile($file)->hexdigest;
    return if $seen eq $sha256;
    write_file( 'mismatches.txt', substr( $path, 5 ) =~ s{/}{%2F}gr . "\n" );    # the host reads it
    die "$path has another sha256 than CHECKSUMS says: it is not used\n";
}

# CHECKSUMS is a Perl program that assigns one structure of literals. It is read as text, never evaluated.
sub read_checksums {
    my $folder = shift;
    download( "authors/id/$folder/CHECKSUMS", 'CHECKSUMS', $SMALL_BYTES );
    my %found;
    my $name;
    for my $line ( split /\n/, read_file('CHECKSUMS') ) {
        if ( $line =~ /\A\s*'([A-Za-z0-9][A-Za-z0-9._+-]{0,200})'\s*=>\s*\{\s*\z/ ) { $name = $1 }
        elsif ( $line =~ /\A\s*\}[,;]?\s*\z/ ) { undef $name }
        elsif ( defined $name && $line =~ /\A\s*'sha256'\s*=>\s*'([0-9a-f]{64})'\s*,?\s*\z/ ) { $found{$name} //= $1 }
    }
    return \%found;
}

sub read_meta {
    my $archive = shift;
    for my $file (qw(META.json META.yml)) {
        my $text = read_member( $archive, $file );
        next unless length $text;
        my $load = $file eq 'META.json' ? 'load_json_string' : 'load_yaml_string';
        my $meta = eval { CPAN::Meta->$load( $text, { lazy_validation => 1 } ) };
        return $meta if $meta;
    }
    return;
}

# The text of one file of an archive, at its top: written to no file.
sub read_member {
    my ( $archive, $file ) = @_;
    my @match = ( '--wildcards', '--no-wildcards-match-slash', "*/$file", "./*/$file" );
    open my $pipe, '-|', 'timeout', '60', 'sh', '-c', 'exec 2>/dev/null tar "$@"', 'sh', '--force-local', '-xOf',
        $archive, @match
        or die "tar: $!\n";
    my $text;
    my $length = read $pipe, $text, $SMALL_BYTES;
    close $pipe;    # its status is not asked: one of the two patterns never matches
    return $length ? $text : '';
}

sub download {
    my ( $path, $file, $limit ) = @_;
    my $answer;
    for my $try ( 1 .. $TRIES ) {
        open my $out, '>:raw', $file or die "$file: $!\n";
        my $size = 0;
        $answer = $http->get( "$mirror/$path", { data_callback => sub {
            die "larger than $limit bytes\n" if ( $size += length $_[0] ) > $limit;
            print {$out} $_[0] or die "$file: $!\n";
        } } );
        close $out or die "$file: $!\n";
        return if $answer->{success};
        unlink $file;
        last if $answer->{status} != 599 && $answer->{status} < 500;
        sleep $try if $try < $TRIES;
    }
    my $why = $answer->{status} == 599 ? substr( $answer->{content} // '', 0, 300 ) : $answer->{reason};
    die "$path: $answer->{status} $why\n";
}

sub read_file {
    my $file = shift;
    open my $in, '<:raw', $file or die "$file: $!\n";
    local $/;
    return scalar <$in>;
}

sub note {
    my $text = shift;
    push @notes, $text;
    print STDERR "$text\n";
    return;
}

sub write_selection {
    my $locks = grep { $locked{$_} } keys %ranges;
    my @said;
    if (@unverified) {    # first, for what is last may be cut off
        my $last  = $#unverified < 4 ? $#unverified : 4;
        my $shown = join ', ', @unverified[ 0 .. $last ], $#unverified > 4 ? '...' : ();
        push @said, @unverified . " not verified, being not in CHECKSUMS: $shown";
    }
    push @said, 'locked: ' . $locks . ' modules' if $locks;
    push @said, 'the newest of the index, which knows no dates' if -e 'index.txt';
    push @said, 'of the image: ' . keys(%in_image) . ' modules' if %in_image;
    push @said, @notes;
    write_file( 'selection.txt', substr( join( '; ', @said ), 0, 1900 ) . "\n" );
}

sub write_file {
    my ( $file, $text ) = @_;
    open my $out, '>', $file or die "$file: $!\n";
    print {$out} $text;
    close $out or die "$file: $!\n";
}
