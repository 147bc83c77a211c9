"""Names of Debian's packages (bookworm) for what a build or a test of C and C++ misses. Pure.

For advice: a row lists what projects ask for often, in the words of compilers (a header, or its folder), linkers,
pkg-config, CMake, Meson and shells. What is not listed has no advice: a wrong package would cost more than none.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

_LIBRARIES = """
libacl1-dev         sys/acl.h acl libacl
libarchive-dev      archive.h archive_entry.h archive libarchive LibArchive
libasound2-dev      alsa/ asound alsa ALSA
libattr1-dev        attr/xattr.h attr libattr
libavcodec-dev      libavcodec/ avcodec libavcodec
libavformat-dev     libavformat/ avformat libavformat
libboost-all-dev    boost/ boost Boost boost_system boost_filesystem boost_unit_test_framework
libbrotli-dev       brotli/ brotlidec brotlienc libbrotlidec libbrotlienc
libbsd-dev          bsd/ bsd libbsd
libbz2-dev          bzlib.h bz2 bzip2 BZip2
libc-ares-dev       ares.h cares libcares c-ares
libcairo2-dev       cairo.h cairo/ cairo
libcap-dev          sys/capability.h cap libcap
libcjson-dev        cjson/ cjson libcjson cJSON
libcriterion-dev    criterion/ criterion
libcurl4-openssl-dev curl/ curl libcurl CURL
libdb-dev           db.h db BerkeleyDB
libdbus-1-dev       dbus/ dbus-1
libdw-dev           elfutils/ dwarf.h dw libdw
libedit-dev         histedit.h editline/ edit libedit
libeigen3-dev       Eigen/ eigen3 Eigen3
libelf-dev          libelf.h gelf.h elf libelf
libev-dev           ev.h ev libev
libevent-dev        event2/ event.h event libevent LibEvent
libexpat1-dev       expat.h expat EXPAT
libffi-dev          ffi.h ffi libffi
libfftw3-dev        fftw3.h fftw3 FFTW3
libflac-dev         FLAC/ FLAC flac
libfmt-dev          fmt/ fmt
libfontconfig-dev   fontconfig/ fontconfig Fontconfig
libfreetype-dev     ft2build.h freetype freetype2
libfuse3-dev        fuse3/ fuse3
libgcrypt20-dev     gcrypt.h gcrypt libgcrypt
libgdbm-dev         gdbm.h gdbm
libgif-dev          gif_lib.h gif GIF
libgit2-dev         git2.h git2 libgit2
libgl-dev           GL/gl.h GL gl OpenGL
libglew-dev         GL/glew.h GLEW glew
libglfw3-dev        GLFW/ glfw glfw3
libglib2.0-dev      glib.h glib-2.0 gio-2.0 gobject-2.0 gthread-2.0 gmodule-2.0 GLIB2
libglu1-mesa-dev    GL/glu.h GLU glu
libgmp-dev          gmp.h gmp GMP
libgnutls28-dev     gnutls/ gnutls GnuTLS
libgoogle-glog-dev  glog/ glog
libgflags-dev       gflags/ gflags
libgpgme-dev        gpgme.h gpgme
libgsl-dev          gsl/ gsl
libgtest-dev        gtest/ gtest gtest_main GTest
libgmock-dev        gmock/ gmock gmock_main
libgtk-3-dev        gtk/ gtk+-3.0
libharfbuzz-dev     hb.h harfbuzz
libhdf5-dev         hdf5.h hdf5 HDF5
libhiredis-dev      hiredis/ hiredis
libicu-dev          unicode/ icuuc icu-uc icu-i18n icu-io ICU
libidn2-dev         idn2.h idn2 libidn2
libjansson-dev      jansson.h jansson
libjemalloc-dev     jemalloc/ jemalloc
libjpeg-dev         jpeglib.h jpeg libjpeg JPEG
libjson-c-dev       json-c/ json-c
libkrb5-dev         krb5.h gssapi/ krb5 krb5-gssapi gssapi_krb5
liblapack-dev       lapack LAPACK
libldap-dev         ldap.h ldap lber
liblmdb-dev         lmdb.h lmdb
liblua5.4-dev       lua.h lauxlib.h lualib.h lua lua5.4 lua-5.4 Lua
libluajit-5.1-dev   luajit.h luajit luajit-5.1 LuaJIT
liblz4-dev          lz4.h lz4frame.h lz4 liblz4
liblzma-dev         lzma.h lzma liblzma LibLZMA
liblzo2-dev         lzo/ lzo2
libmagic-dev        magic.h magic libmagic
libmariadb-dev      mysql.h mysql/ mariadb/ mysqlclient mariadb libmariadb
libmaxminddb-dev    maxminddb.h maxminddb libmaxminddb
libmicrohttpd-dev   microhttpd.h microhttpd libmicrohttpd
libmbedtls-dev      mbedtls/ mbedtls MbedTLS
libmp3lame-dev      lame/ mp3lame
libmpfr-dev         mpfr.h mpfr
libmsgpack-dev      msgpack.h msgpack/ msgpack
libncurses-dev      ncurses.h curses.h term.h ncurses ncursesw tinfo curses Curses
libnghttp2-dev      nghttp2/ nghttp2 libnghttp2
libnl-3-dev         netlink/ nl-3 libnl-3.0
libnuma-dev         numa.h numa NUMA
libogg-dev          ogg/ ogg
libonig-dev         oniguruma.h onig oniguruma
libopenal-dev       AL/ openal OpenAL
libopenblas-dev     cblas.h openblas blas cblas BLAS
libopus-dev         opus/ opus
libpam0g-dev        security/ pam pam_misc
libpcap-dev         pcap.h pcap/ pcap libpcap PCAP
libpcre2-dev        pcre2.h pcre2posix.h pcre2-8 libpcre2-8 PCRE2
libpng-dev          png.h png libpng libpng16 PNG
libpopt-dev         popt.h popt
libpq-dev           libpq-fe.h postgresql/ pq libpq PostgreSQL
libprotobuf-dev     google/protobuf/ protobuf protobuf-lite Protobuf
libpsl-dev          libpsl.h psl libpsl
libpugixml-dev      pugixml.hpp pugixml
libpulse-dev        pulse/ pulse libpulse pulse-simple libpulse-simple
librdkafka-dev      librdkafka/ rdkafka
libre2-dev          re2/ re2
libreadline-dev     readline/ readline Readline
libsasl2-dev        sasl/ sasl2 libsasl2
libsdl2-dev         SDL2/ SDL.h SDL2 sdl2
libsdl2-image-dev   SDL_image.h SDL2_image SDL2_image
libseccomp-dev      seccomp.h seccomp libseccomp
libselinux1-dev     selinux/ selinux libselinux
libsnappy-dev       snappy.h snappy-c.h snappy Snappy
libsndfile1-dev     sndfile.h sndfile SndFile
libsodium-dev       sodium.h sodium libsodium
libspdlog-dev       spdlog/ spdlog
libsqlite3-dev      sqlite3.h sqlite3 SQLite3 unofficial-sqlite3
libssh-dev          libssh/ ssh libssh
libssh2-1-dev       libssh2.h ssh2 libssh2
libssl-dev          openssl/ ssl crypto openssl libssl libcrypto OpenSSL
libsystemd-dev      systemd/ libsystemd
libtbb-dev          tbb/ tbb TBB
libtiff-dev         tiffio.h tiff libtiff-4 TIFF
libtinyxml2-dev     tinyxml2.h tinyxml2
libudev-dev         libudev.h udev libudev
libunistring-dev    unistr.h unistring
libunwind-dev       libunwind.h unwind libunwind
liburing-dev        liburing.h uring liburing
libusb-1.0-0-dev    libusb-1.0/ libusb.h usb-1.0 libusb-1.0
libuv1-dev          uv.h uv libuv
libvorbis-dev       vorbis/ vorbis vorbisfile
libvulkan-dev       vulkan/ vulkan Vulkan
libwayland-dev      wayland-client.h wayland-client wayland-server
libwebp-dev         webp/ webp libwebp
libx11-dev          X11/Xlib.h X11/Xutil.h X11 x11
libxext-dev         X11/extensions/ Xext xext
libxkbcommon-dev    xkbcommon/ xkbcommon
libxml2-dev         libxml/ xml2 libxml-2.0 LibXml2
libxrandr-dev       X11/extensions/Xrandr.h Xrandr xrandr
libxslt1-dev        libxslt/ xslt libxslt LibXslt
libyaml-cpp-dev     yaml-cpp/ yaml-cpp
libyaml-dev         yaml.h yaml yaml-0.1
libzip-dev          zip.h zip libzip
libzmq3-dev         zmq.h zmq libzmq ZeroMQ
libzstd-dev         zstd.h zstd libzstd
nettle-dev          nettle/ nettle hogweed
nlohmann-json3-dev  nlohmann/ nlohmann_json
portaudio19-dev     portaudio.h portaudio portaudio-2.0
pybind11-dev        pybind11/ pybind11
python3-dev         Python.h python3 Python3
qt6-base-dev        Qt6 Qt6Core Qt6Widgets
qtbase5-dev         QtCore/ QtWidgets/ Qt5 Qt5Core Qt5Widgets
rapidjson-dev       rapidjson/ RapidJSON
systemd             systemd
tcl-dev             tcl.h tcl TCL
uuid-dev            uuid/ uuid
valgrind            valgrind/ valgrind
zlib1g-dev          zlib.h zconf.h z zlib ZLIB
"""
"""By package: headers (`folder/` stands for all headers in it), libraries, modules of pkg-config, packages of CMake."""

_PROGRAMS = """
ant ant
asciidoc asciidoc a2x
asciidoctor asciidoctor
bsdextrautils hexdump column
cargo cargo
clang clang clang++
clang-format clang-format
clang-tidy clang-tidy
curl curl
doxygen doxygen Doxygen
ed ed
expect expect
gdb gdb
gfortran gfortran
git-lfs git-lfs
golang-go go
graphviz dot
groff groff
gtk-doc-tools gtkdocize gtkdoc-scan
help2man help2man
imagemagick convert
intltool intltoolize
iproute2 ip ss
jq jq
kyua kyua
lcov lcov genhtml
libxml2-utils xmllint
lsof lsof
man-db man
maven mvn
netcat-openbsd nc
nodejs node
npm npm npx
openssl openssl
pandoc pandoc
protobuf-compiler protoc
python3-docutils rst2man rst2html
python3-sphinx sphinx-build
ragel ragel
re2c re2c
rsync rsync
ruby ruby
scdoc scdoc
socat socat
sqlite3 sqlite3
strace strace
sudo sudo
swig swig SWIG
tcl tclsh
tcsh csh tcsh
valgrind valgrind
valac valac
wget wget
xmlto xmlto
xsltproc xsltproc
xvfb Xvfb xvfb-run
zsh zsh
"""
"""By package: the programs in it that builds and tests call."""


def find_library_package(name: str) -> str:
    """The package that has a header, a library, or what pkg-config, CMake or Meson call a package; '' if unknown."""
    known, name = _read(_LIBRARIES), name.lower()
    return next((known[word] for word in (name, *_folders(name)) if word in known), "")


def find_program_package(name: str) -> str:
    """The package that has a program; '' if unknown."""
    return _read(_PROGRAMS).get(name.lower(), "")


def _folders(header: str) -> Iterator[str]:
    """The folders of a header, the deepest first: `a/b/` and `a/` of `a/b/c.h`."""
    while "/" in header:
        header = header.rpartition("/")[0]
        yield f"{header}/"


@lru_cache(maxsize=2)
def _read(table: str) -> dict[str, str]:
    rows = [line.split() for line in table.split("\n") if line]
    return {name.lower(): package for package, *names in rows for name in names}
