package stack

import "os"

// cudnnFiles are the files that builds for other systems embed. A browser loads one when a convolution needs it: the
// page's worker serves this folder from the network.
var cudnnFiles = os.DirFS("/vprof")
