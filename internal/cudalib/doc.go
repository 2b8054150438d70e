// Package cudalib loads NVIDIA's driver library, libcuda.so.1, at run time, so that one binary starts on every machine
// and can report a missing driver.
//
// Code that calls the driver, gorgonia.org/cu above all, is written against symbols of that library. This package
// defines each of them as a jump through a slot, which answers "symbol not found" until [Open] has loaded the library
// and looked the symbol up. An empty libcuda.a beside it satisfies cu's -lcuda. cuInit alone is no such jump: cu calls
// it before main and ends the process if it fails, so here it does nothing, and Open initializes the driver when it is
// needed.
//
// With the build tag cuda, on Linux and with cgo, the package also has the calls that cu lacks, such as the ones that
// map memory page by page. Otherwise it is empty.
package cudalib
