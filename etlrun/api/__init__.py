"""What `import etlrun` offers to notebooks, programs and tests: the objects that the commands use."""
