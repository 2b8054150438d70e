package stack

import "os"

// cudnnFiles are the files that builds for other operating systems embed. A browser loads one when a convolution needs
// it; the page's worker fetches it from the server.
var cudnnFiles = os.DirFS("/vprof")
