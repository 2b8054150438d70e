module github.com/vprof/vprof

go 1.26
