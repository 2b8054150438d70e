#!/bin/sh
# Builds the stubs for one major version of CUDA into a folder.
#     build.sh 12|13 FOLDER INCLUDE...
# CC names the compiler. The libraries have NVIDIA's sonames. The runtime's files have other names: if a file is
# named libcudart.so, PyTorch loads the libraries beside it again.
set -eu
cuda=$1 out=$2
shift 2
here=$(cd "$(dirname "$0")/source" && pwd)
CC=${CC:-cc}
flags="-std=gnu11 -O1 -fPIC -fvisibility=hidden -fno-stack-protector -D_GNU_SOURCE -Wall -Wextra -Werror"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in "$here"/*.c; do
  $CC $flags -isystem "$here" $(printf -- '-isystem %s ' "$@") -c "$file" -o "$work/$(basename "$file" .c).o"
done
$CC -shared -Wl,-soname,libvprof_gpu.so -Wl,-s -o "$out/libvprof_gpu.so" "$work"/*.o -pthread -ldl
case $cuda in
  12) own="libcudart.so.12 libcublas.so.12 libcublasLt.so.12 libcufft.so.11 libcusolver.so.11 libcupti.so.12 libnvrtc.so.12" ;;
  13) own="libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libcufft.so.12 libcusolver.so.12 libcupti.so.13 libnvrtc.so.13" ;;
esac
echo 'extern int vprof_empty; int vprof_empty;' >"$work/empty.c"
for soname in $own libcusparse.so.12 libcudnn.so.9 libnccl.so.2 libcufile.so.0 libcusparseLt.so.0 libcurand.so.10 \
  libnvshmem_host.so.3 libcuda.so.1 libnvidia-ml.so.1; do
  file=vprof-${soname#lib}
  case $soname in libcuda.so.1 | libnvidia-ml.so.1) file=$soname ;; esac
  $CC -shared -fPIC -fvisibility=hidden -nostdlib -Wl,-s -Wl,--no-as-needed -Wl,-soname,"$soname" -Wl,-rpath,'$ORIGIN' \
    -o "$out/$file" "$work/empty.c" "$out/libvprof_gpu.so"
done
# Triton 3.4 links with -lcuda.
cp "$out/libcuda.so.1" "$out/libcuda.so"
