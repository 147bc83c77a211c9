-- What the lantern shows and says.
function answer()
    return 42
end

function greeting()
    return "hello"
end

function colour()
    return 200, 120, 40
end
