#!/bin/sh
# Installs the packages next to those of Debian and in place of them, runs programs, and removes the packages.
# `cargo xtask package --test` runs this in a fresh root in which /trial has the packages; the root has a network of
# its own. One line for each check that passed. The script ends at the first that fails.
set -eu

export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
LIBDIR=/usr/lib/x86_64-linux-gnu
OURS="libdat2-rs dat-rs-utils libdat2-rs-dev"
VERBS=libibverbs-dat-rs

ok() { echo "ok $*"; }
fail() {
	echo "failed: $*" >&2
	exit 1
}
must() {
	what=$1
	shift
	"$@" > /tmp/out 2>&1 || {
		cat /tmp/out
		fail "$what: $*"
	}
	ok "$what"
}
must_not() {
	what=$1
	shift
	if "$@" > /tmp/out 2>&1; then
		cat /tmp/out
		fail "$what: $*"
	fi
	ok "$what"
}
says() {
	grep -q -e "$1" /tmp/out || {
		cat /tmp/out
		fail "no line has $1"
	}
}

install_files() { dpkg --force-unsafe-io --install "$@"; }
install_ours() {
	install_files /trial/libdat2-rs_*.deb /trial/dat-rs-utils_*.deb /trial/libdat2-rs-dev_*.deb
}
purge() { dpkg --force-unsafe-io --purge "$@"; }
has() { dpkg-query --show --showformat='${db:Status-Abbrev}' "$1" 2> /tmp/err | grep -q '^ii'; }

# All files with their owners, modes and contents, without the records of dpkg and of its log.
snapshot() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /trial -o -path /var/lib/dpkg \
		-o -path /var/log -o -path /var/cache \) -prune -o -printf '%y %m %U:%G %p %l\n' | sort
	find /etc /usr /var/lib -xdev -path /var/lib/dpkg -prune -o -type f -exec md5sum {} + | sort -k 2
}

# The package whose registry library the loader finds for a program of Debian.
registry_of_dtest() {
	# As ldd does, which needs bash.
	file=$(readlink -f "$(LD_TRACE_LOADED_OBJECTS=1 dtest | sed -n 's/.*libdat2.so.2 => \([^ ]*\).*/\1/p')")
	sum=$(md5sum < "$file" | cut -d ' ' -f 1)
	for package in libdat2-rs libdapl2; do
		list=$(dpkg-query --control-path "$package" md5sums 2> /tmp/err) || continue
		if grep -q "^$sum .*/libdat2.so.2.0.0\$" "$list"; then
			echo "$package"
		fi
	done
}
registry_is() { [ "$(registry_of_dtest)" = "$1" ]; }

# Waits until a service listens at the TCP port, which is in hexadecimal; any port if that is empty.
wait_for_listener() {
	for _ in $(seq 300); do
		if grep -q "^ *[0-9]*: [0-9A-F]*:$1[0-9A-F]* [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6; then
			return 0
		fi
		sleep 0.1
	done
	return 1
}

# OFA's test, both ends.
dtest_passes() {
	dtest -P iwarp-lo -s > /tmp/server 2>&1 &
	server=$!
	wait_for_listener ""
	timeout 60 dtest -P iwarp-lo -h 127.0.0.1 > /tmp/client 2>&1 || true
	wait "$server" || true
	cat /tmp/server /tmp/client
	grep -q "Complete. PASSED" /tmp/server && grep -q "Complete. PASSED" /tmp/client
}

# A server and a client that know nothing of the stack; the client shows the connections while it has one.
opsrun_works() {
	timeout 60 opsrun perl -MIO::Socket::INET -e '
		my $listener = IO::Socket::INET->new(
			LocalAddr => "127.0.0.1", LocalPort => 8000, Listen => 1) or die "listen: $!";
		my $peer = $listener->accept or die "accept: $!";
		my $line = <$peer>;
		print $peer uc $line;
		my $end = <$peer>;' &
	server=$!
	wait_for_listener 1F40
	timeout 60 opsrun perl -MIO::Socket::INET -e '
		my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => 8000) or die "connect: $!";
		print $socket "hello\n";
		$socket->flush;
		print "answer: ", scalar <$socket>;
		system("opsrun", "ss");'
	wait "$server"
}

programs_run() {
	must "$1: libdat2-rs has the registry" registry_is libdat2-rs
	must "$1: dtest" dtest_passes
	must "$1: datinfo" datinfo
	says iwarp-lo
	must "$1: opsrun" opsrun_works
	says 'answer: HELLO'
	says '^local .*127.0.0.1:8000'
}

# OFA's registry has no provider that works without a device, so it loads ours from another place.
debians_registry_works() {
	must "$1: libdapl2 has the registry" registry_is libdapl2
	echo 'iwarp-lo u2.0 nonthreadsafe default /trial/libdapl-iwarp.so.2 dat-rs.1.0 "lo 0" ""' > /tmp/dat.conf
	export DAT_OVERRIDE=/tmp/dat.conf
	must "$1: dtest" dtest_passes
	unset DAT_OVERRIDE
}

# The directory in which the loader finds both libraries for programs of Debian.
verbs_are_in() {
	LD_TRACE_LOADED_OBJECTS=1 ib_write_bw > /tmp/loaded
	for library in libibverbs.so.1 librdmacm.so.1; do
		grep -q "$library => $1/$library " /tmp/loaded || {
			cat /tmp/loaded
			return 1
		}
	done
}

# A program of Debian with a server and a client, without verbsrun; the client's output is in /tmp/out.
verbs_pair() {
	"$@" > /tmp/server 2>&1 &
	server=$!
	wait_for_listener 4853
	timeout 60 "$@" 127.0.0.1 && wait "$server"
}

verbs_run() {
	must "$1: the loader finds the libraries" verbs_are_in "$LIBDIR/dat-rs/verbs"
	must "$1: ibv_devinfo" ibv_devinfo -d dat_lo
	says 'PORT_ACTIVE'
	must "$1: ibv_rc_pingpong" verbs_pair ibv_rc_pingpong -d dat_lo -g 0
	says '1000 iters in'
	must "$1: ib_write_bw" verbs_pair ib_write_bw -d dat_lo -x 0 -n 200
	says '^ *65536  *200 '
}

# The records of our packages; fails if there are none.
our_records() { find /var/lib/dpkg/info \( -name '*dat-rs*' -o -name 'libdat2-rs*' \) | grep .; }

nothing_is_left() {
	for package in $OURS; do
		must_not "$1: no $package" dpkg-query --show "$package"
	done
	must_not "$1: no diversion" grep -q libdat2 /var/lib/dpkg/diversions
	must_not "$1: no records" our_records
}

# The files are those of the snapshot in the file $1.
is_as_before() {
	snapshot > /tmp/now
	diff "$1" /tmp/now
}

ldconfig
snapshot > /tmp/empty

# Programs of verbs next to rdma-core's libraries, which the root has.
must "verbs: rdma-core's libraries are found" verbs_are_in "$LIBDIR"
must "verbs: installation" install_files /trial/${VERBS}_*.deb
must "verbs: the package is complete" dpkg --verify "$VERBS"
verbs_run verbs
must "verbs: verbsrun" verbsrun --explain ibv_devinfo
says "$LIBDIR/dat-rs/verbs"
must "verbs: rdma-core's library again" install_files /trial/libibverbs1_*.deb
verbs_run "verbs after rdma-core"
must "verbs: removal" dpkg --force-unsafe-io --remove "$VERBS"
must "verbs: rdma-core's libraries are back" verbs_are_in "$LIBDIR"
must "verbs: purge" purge "$VERBS"
must "verbs: all files are as before" is_as_before /tmp/empty

# In place of Debian's libraries: its tools are content with ours.
must "alone: installation" install_ours
must "alone: dapl2-utils without libdapl2" install_files /trial/dapl2-utils_*.deb
must "alone: the packages are complete" dpkg --verify $OURS
must_not "alone: no libdapl2" has libdapl2
programs_run alone
must "alone: the manual page is found" test -e /usr/share/man/man5/dat.conf.5dat-rs.gz
must "alone: headers" test -e /usr/include/dat2/dat_iw_extensions.h

# Debian's library after ours: it is unpacked under another name.
must "second: libdapl2 after libdat2-rs" install_files /trial/libdapl2_*.deb
must "second: OFA's registry is aside" test -e "$LIBDIR/ofa-libdat2.so.2.0.0"
cp /etc/dat.conf /tmp/debians.conf
printf '\niwarp-lo u2.0 nonthreadsafe default libdapl-iwarp.so.2 dat-rs.1.0 "lo 0" ""\n' >> /etc/dat.conf
programs_run second
must "second: OFA's adapters are listed" datinfo
says ofa-v2
cp /tmp/debians.conf /etc/dat.conf
must "second: removal" purge $OURS
nothing_is_left second
must "second: libdapl2 is complete" dpkg --verify libdapl2 dapl2-utils
debians_registry_works second

# Ours after Debian's library.
snapshot > /tmp/debian
must "third: libdapl-dev" install_files /trial/libdapl-dev_*.deb
must "third: installation" install_ours
must_not "third: libdat2-rs-dev has replaced libdapl-dev" has libdapl-dev
must "third: the same version again" install_ours
printf '\niwarp-lo u2.0 nonthreadsafe default libdapl-iwarp.so.2 dat-rs.1.0 "lo 0" ""\n' >> /etc/dat.conf
programs_run third
cp /tmp/debians.conf /etc/dat.conf
must "third: removal without purging" dpkg --force-unsafe-io --remove $OURS
must "third: all files are as before" is_as_before /tmp/debian
must "third: purge" purge $OURS
nothing_is_left third
debians_registry_works third

must "end: removal of Debian's packages" purge dapl2-utils libdapl2
must "end: all files are as in the beginning" is_as_before /tmp/empty
echo "end of the trial"
