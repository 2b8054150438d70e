// Package nvmllib loads NVIDIA's management library, libnvidia-ml.so.1, at run time, and stands between it and go-nvml.
//
// go-nvml leaves NVML's symbols undefined for the dynamic loader to find when they are first called. That kills a
// program at its start where the compiler binds symbols at once, as that of Ubuntu does by default, and at the call
// where an old driver lacks a function. So this package defines each symbol as a jump through a slot, which answers
// "function not found" until [Load] has found the function. Package internal/cudalib does the same for the driver.
//
// Without cgo, or elsewhere than on Linux, the package is empty.
package nvmllib
