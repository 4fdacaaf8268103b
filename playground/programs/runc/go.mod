module github.com/azuredisk-csi/azuredisk/playground/programs/runc

go 1.26.0

tool github.com/opencontainers/runc

require github.com/opencontainers/runc v1.5.2
